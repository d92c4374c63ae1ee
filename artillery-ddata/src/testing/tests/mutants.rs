//! Members with a guard left out: somebody must notice.

use super::super::*;
use crate::replica::Mutant;
