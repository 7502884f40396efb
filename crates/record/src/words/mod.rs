//! Values of a record in words, for views and formats alike.

mod ends;
mod fallback;
mod quantity;
mod result;

pub use ends::ends;
pub use fallback::{is_of_fallback, of_fallback};
pub use quantity::{bytes, in_unit, milliseconds, times};
pub use result::{chart, names_something, readable};
