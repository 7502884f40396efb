//! The fields that messages are made of.

/// Appends a field of bytes. Values beyond 4 GiB are cut; callers cap earlier.
pub(super) fn write(message: &mut Vec<u8>, key: &'static str, value: &[u8]) {
    let value = &value[..value.len().min(u32::MAX as usize)];
    message.extend([b'b', key.len() as u8]);
    message.extend((value.len() as u32).to_be_bytes());
    message.extend(key.as_bytes());
    message.extend(value);
}
