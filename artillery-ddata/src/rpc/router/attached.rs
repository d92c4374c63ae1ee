//! Services of a process that its handles share, one of each type: they live as long as the router.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Default)]
pub(super) struct Attached(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Attached {
    /// The service of this type. The first call makes it.
    pub(super) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().find_map(|one| one.clone().downcast::<T>().ok()) {
            return found;
        }
        let made = Arc::new(make());
        all.push(made.clone());
        made
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attached")
    }
}
