//! Timing rows by turns, so that what else the machine does meets all of them alike.

use std::time::Duration;

use crate::Result;
use crate::shuffle::Shuffle;

/// Rounds before the first that counts.
const WARM_UP: usize = 3;

/// Does the work once more; returns how long it took.
pub(crate) type Ready = Box<dyn FnMut() -> Result<Duration>>;

/// Times each row once in each of `runs` rounds; the times are in microseconds. Before each row it
/// waits for `rest` milliseconds, in which servers refill. `name` is for errors.
pub(crate) fn time<R>(
    rows: Vec<(R, Ready)>,
    name: impl Fn(&R) -> &str,
    runs: usize,
    rest: u64,
) -> Result<Vec<(R, Vec<f64>)>> {
    let mut rows: Vec<_> = (rows.into_iter())
        .map(|(row, ready)| (row, ready, Vec::new()))
        .collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut shuffle = Shuffle::new();
    for round in 0..WARM_UP + runs {
        shuffle.of(&mut order);
        for index in &order {
            std::thread::sleep(Duration::from_millis(rest));
            let (row, ready, times) = &mut rows[*index];
            let took = ready().map_err(|error| format!("{}: {error}", name(row)))?;
            if round >= WARM_UP {
                times.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(rows
        .into_iter()
        .map(|(row, _, times)| (row, times))
        .collect())
}
