mod outputs;
mod stage;

/// Pairs of owned texts, to compare with.
fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into()));
    owned.collect()
}
