//! Settings as plain data: start from a preset, change fields or chain `with_…` calls, and check with `validate`.

/// Gives a settings struct one `with_…` method for each of its fields.
macro_rules! setters {
    ($settings:ident { $($with:ident: $field:ident: $type:ty,)* }) => {
        impl $settings {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

mod swim;
mod transport;

pub use swim::SwimSettings;
pub use transport::{Congestion, TransportConfig};
