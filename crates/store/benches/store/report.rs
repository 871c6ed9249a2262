//! Figures with their goals, for people and for programs.

use std::fmt::Display;

#[derive(Default)]
pub struct Report {
    figures: Vec<(&'static str, f64)>,
}

/// What a figure should be.
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
    None,
}

impl Report {
    pub fn add(&mut self, name: &'static str, value: f64, goal: &Goal, detail: impl Display) {
        let (goal, verdict) = match goal {
            Goal::AtLeast(goal) => (format!("≥ {goal}"), value >= *goal),
            Goal::AtMost(goal) => (format!("≤ {goal}"), value <= *goal),
            Goal::None => ("–".to_owned(), true),
        };
        let verdict = if verdict { "ok" } else { "MISSED" };
        println!("{name:<28} {value:>14.3}  goal {goal:<8} {verdict:<6}  {detail}");
        self.figures.push((name, value));
    }

    pub fn print(&self, json: bool) {
        if json {
            let fields: Vec<String> = self
                .figures
                .iter()
                .map(|(name, value)| match value.is_finite() {
                    true => format!("\"{name}\": {value:.4}"),
                    // Not measured: a machine without strace, say, or one that was never quiet.
                    false => format!("\"{name}\": null"),
                })
                .collect();
            println!("{{{}}}", fields.join(", "));
        }
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn percentile(mut values: Vec<f64>, of_100: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * of_100 / 100).min(values.len() - 1)]
}
