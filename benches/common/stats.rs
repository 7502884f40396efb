//! Order statistics of a series of times.

use serde::{Deserialize, Serialize};

/// A series in short. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) runs: usize,
    pub(crate) min: f64,
    pub(crate) p10: f64,
    pub(crate) median: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

impl Summary {
    /// Of a series that is not empty.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&values, share);
        Self {
            runs: values.len(),
            min: at(0.0),
            p10: at(0.1),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }
}

/// The middle of `values`; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// The value below which `share` of the sorted `values` lie, interpolated.
fn quantile(values: &[f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let position = share * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    values[below] + (values[above] - values[below]) * position.fract()
}
