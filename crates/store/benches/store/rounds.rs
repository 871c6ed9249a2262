//! Floor, ours, floor, until enough rounds were undisturbed.

/// Given up on after so many times as many rounds as are wanted.
const TRIES_PER_ROUND: usize = 5;

/// Two floors of one round that differ by more tell of somebody else's load.
const DISTURBED: f64 = 1.25;

/// What was measured in rounds whose floors agree, and how many others were thrown away.
pub struct Rounds<T> {
    pub kept: Vec<Round<T>>,
    pub disturbed: usize,
}

pub struct Round<T> {
    pub ours: T,
    /// Of the two.
    pub floor: f64,
}

pub fn rounds<T>(wanted: usize, mut measure: impl FnMut() -> (f64, T, f64)) -> Rounds<T> {
    let mut rounds = Rounds { kept: Vec::new(), disturbed: 0 };
    for _ in 0..wanted * TRIES_PER_ROUND {
        let (before, ours, after) = measure();
        if before.max(after) / before.min(after) > DISTURBED {
            rounds.disturbed += 1;
            continue;
        }
        rounds.kept.push(Round { ours, floor: f64::midpoint(before, after) });
        if rounds.kept.len() == wanted {
            break;
        }
    }
    rounds
}
