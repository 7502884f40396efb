//! The fields that messages are made of.

use super::reader::Violation;

/// One field of a frame, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) form: u8,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Appends a field of bytes. Values beyond 4 GiB are cut; callers cap earlier.
pub(super) fn write(message: &mut Vec<u8>, key: &'static str, value: &[u8]) {
    let value = &value[..value.len().min(u32::MAX as usize)];
    message.extend([b'b', key.len() as u8]);
    message.extend((value.len() as u32).to_be_bytes());
    message.extend(key.as_bytes());
    message.extend(value);
}

/// The fields of a message's body.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Violation::Field))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self) -> Option<Field<'a>> {
        let (&[form, key], rest) = self.0.split_first_chunk()?;
        let (&length, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(key.into())?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(length) as usize)?;
        self.0 = rest;
        Some(Field { form, key, value })
    }
}
