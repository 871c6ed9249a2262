//! Watching one command: what is to be done, and when. Time is given, never read.
//!
//! Invariant: [`Action::Complete`] comes exactly once, and nothing comes after it.

use super::CommandError;
use super::kind::Thresholds;

/// How often silence is looked at.
const SILENCE_TICK_MS: u64 = 5_000;

/// How often it is looked whether the process is still there, and whether it runs long.
const HEALTH_TICK_MS: u64 = 60_000;

/// A command that runs longer is spoken of, long before it is ended.
const LONG_RUNNING_MS: u64 = 240_000;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Something was printed, on either stream.
    Output,
    /// The process has ended.
    Exited { code: Option<i32> },
    /// The process is gone, and nobody knows how it ended.
    Lost,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Warn {
        silent_ms: u64,
    },
    /// The whole group of processes, at once.
    Kill {
        reason: KillReason,
    },
    /// Its agent goes on with other work.
    Background,
    LongRunning {
        running_ms: u64,
    },
    /// The one result.
    Complete {
        success: bool,
        code: Option<i32>,
        error: Option<CommandError>,
        background: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    Silent { silent_ms: u64 },
    TimeLimit,
}

impl KillReason {
    fn error(self) -> CommandError {
        match self {
            KillReason::Silent { .. } => CommandError::Hang,
            KillReason::TimeLimit => CommandError::TimeLimit,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Watch {
    rules: Thresholds,
    started_ms: u64,
    heard_ms: u64,
    warned: bool,
    background: bool,
    killed: Option<KillReason>,
    told_long: bool,
    lost: bool,
    done: bool,
}

impl Watch {
    #[must_use]
    pub fn new(rules: Thresholds, now_ms: u64) -> Watch {
        Watch {
            rules,
            started_ms: now_ms,
            heard_ms: now_ms,
            warned: false,
            background: false,
            killed: None,
            told_long: false,
            lost: false,
            done: false,
        }
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    #[must_use]
    pub fn is_background(&self) -> bool {
        self.background
    }

    /// When to come back with a [`Input::Tick`], if nothing else happens before.
    #[must_use]
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        if self.done {
            return None;
        }
        let running = now_ms.saturating_sub(self.started_ms);
        let next = |tick: u64| self.started_ms + (running / tick + 1) * tick;
        let background = self.rules.background_ms.filter(|_| !self.background);
        let background = background.map(|after| self.started_ms + after);
        let limit = Some(self.started_ms + self.rules.limit_ms).filter(|at| *at > now_ms);
        // Limits below a tick are looked at in their own time.
        let tick =
            self.rules.kill_ms.map_or(SILENCE_TICK_MS, |kill| SILENCE_TICK_MS.min(kill.max(2) / 2));
        [Some(next(tick)), Some(next(HEALTH_TICK_MS)), background, limit]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn on(&mut self, input: Input, now_ms: u64) -> Vec<Action> {
        if self.done {
            return Vec::new();
        }
        match input {
            Input::Output => {
                self.heard_ms = now_ms;
                self.warned = false;
                self.look(now_ms)
            }
            Input::Exited { code } => {
                let error = self.killed.map(KillReason::error);
                vec![self.complete(code, error)]
            }
            Input::Lost => {
                self.lost = true;
                self.look(now_ms)
            }
            Input::Tick => self.look(now_ms),
        }
    }

    fn look(&mut self, now_ms: u64) -> Vec<Action> {
        let running_ms = now_ms.saturating_sub(self.started_ms);
        let mut actions = Vec::new();
        if !self.background && self.rules.background_ms.is_some_and(|after| running_ms >= after) {
            self.background = true;
            actions.push(Action::Background);
        }
        // The health check: a process that is gone will not end by itself.
        if self.lost {
            actions.push(self.complete(None, Some(CommandError::OrphanedCommand)));
            return actions;
        }
        if !self.told_long && running_ms > LONG_RUNNING_MS {
            self.told_long = true;
            actions.push(Action::LongRunning { running_ms });
        }
        if running_ms >= self.rules.limit_ms {
            actions.extend(self.at_the_limit(running_ms));
        } else {
            actions.extend(self.on_silence(now_ms.saturating_sub(self.heard_ms)));
        }
        actions
    }

    fn on_silence(&mut self, silent_ms: u64) -> Option<Action> {
        if self.killed.is_none() && self.rules.kill_ms.is_some_and(|kill| silent_ms >= kill) {
            let reason = KillReason::Silent { silent_ms };
            self.killed = Some(reason);
            return Some(Action::Kill { reason });
        }
        if !self.warned && self.rules.silence_ms.is_some_and(|warn| silent_ms >= warn) {
            self.warned = true;
            return Some(Action::Warn { silent_ms });
        }
        None
    }

    /// Ended at the limit, and given up a moment later if even that did not help. What was killed
    /// before and is still there has had its moment.
    fn at_the_limit(&mut self, running_ms: u64) -> Vec<Action> {
        match self.killed {
            None => {
                let reason = KillReason::TimeLimit;
                self.killed = Some(reason);
                vec![Action::Kill { reason }]
            }
            Some(KillReason::TimeLimit)
                if running_ms < self.rules.limit_ms + self.rules.grace_ms =>
            {
                Vec::new()
            }
            Some(_) => vec![self.complete(None, Some(CommandError::SafetyNetTriggered))],
        }
    }

    fn complete(&mut self, code: Option<i32>, error: Option<CommandError>) -> Action {
        self.done = true;
        let success = code == Some(0) && error.is_none();
        Action::Complete { success, code, error, background: self.background }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000;

    fn watch() -> Watch {
        Watch::new(Thresholds::default(), 0)
    }

    /// Lets time pass as the runner does, and gives what happened with its second.
    fn pass(watch: &mut Watch, mut now: u64, until: u64) -> Vec<(u64, Action)> {
        let mut all = Vec::new();
        while let Some(wake) = watch.wake_ms(now).filter(|wake| *wake <= until) {
            now = wake;
            all.extend(watch.on(Input::Tick, now).into_iter().map(|action| (now / SECOND, action)));
        }
        all
    }

    fn done(error: Option<CommandError>) -> Action {
        Action::Complete { success: false, code: None, error, background: true }
    }

    /// CMD-02, 03, 06: a command that says nothing.
    #[test]
    fn silence_is_warned_about_and_then_ended() {
        let mut silent = watch();
        let seen = pass(&mut silent, 0, 60 * SECOND);
        let expected = [
            (5, Action::Background),
            (30, Action::Warn { silent_ms: 30_000 }),
            (60, Action::Kill { reason: KillReason::Silent { silent_ms: 60_000 } }),
        ];
        assert_eq!(seen, expected);
        let ended = silent.on(Input::Exited { code: None }, 61 * SECOND);
        assert_eq!(ended, [done(Some(CommandError::Hang))]);
        assert_eq!(silent.on(Input::Exited { code: None }, 62 * SECOND), []);
    }

    /// CMD-01, 04, 09: a command that never stops talking is left alone until the limit.
    #[test]
    fn output_keeps_a_command_alive_until_the_absolute_limit() {
        let mut chatty = watch();
        let mut seen = Vec::new();
        for second in 1..=299 {
            seen.extend(pass(&mut chatty, (second - 1) * SECOND, second * SECOND));
            let heard = chatty.on(Input::Output, second * SECOND);
            seen.extend(heard.into_iter().map(|action| (second, action)));
        }
        seen.extend(pass(&mut chatty, 299 * SECOND, 300 * SECOND));
        let expected = [
            (5, Action::Background),
            (241, Action::LongRunning { running_ms: 241_000 }),
            (300, Action::Kill { reason: KillReason::TimeLimit }),
        ];
        assert_eq!(seen, expected);
    }

    /// CMD-08, 17: it was killed for its silence, and its end was never seen.
    #[test]
    fn a_kill_without_an_end_still_ends_at_the_limit() {
        let mut stuck = watch();
        let seen = pass(&mut stuck, 0, 400 * SECOND);
        let last = seen.last().unwrap();
        assert_eq!(*last, (300, done(Some(CommandError::SafetyNetTriggered))));
        assert_eq!(stuck.wake_ms(500 * SECOND), None);
    }

    /// CMD-09: nobody saw the end of the process.
    #[test]
    fn a_lost_process_becomes_a_result() {
        let mut lost = watch();
        let seen = lost.on(Input::Lost, 10 * SECOND);
        assert_eq!(seen, [Action::Background, done(Some(CommandError::OrphanedCommand))]);
    }

    /// CMD-06: what ends quickly is answered at once.
    #[test]
    fn a_quick_command_is_not_sent_to_the_background() {
        let mut quick = watch();
        let ended = quick.on(Input::Exited { code: Some(0) }, SECOND);
        let expected =
            Action::Complete { success: true, code: Some(0), error: None, background: false };
        assert_eq!(ended, [expected]);
    }

    /// CMD-15, C-19: a type that is declared silent is only ended at the limit.
    #[test]
    fn a_silent_type_may_be_silent() {
        let rules = Thresholds { silence_ms: None, kill_ms: None, ..Thresholds::default() };
        let mut install = Watch::new(rules, 0);
        let seen = pass(&mut install, 0, 300 * SECOND);
        let kinds: Vec<_> = seen.iter().map(|(_, action)| *action).collect();
        assert_eq!(kinds.last(), Some(&Action::Kill { reason: KillReason::TimeLimit }));
        assert!(!kinds.iter().any(|action| matches!(action, Action::Warn { .. })));
    }

    fn input() -> impl Strategy<Value = (u64, Input)> {
        let kind = prop_oneof![
            4 => Just(Input::Output),
            4 => Just(Input::Tick),
            1 => any::<Option<i32>>().prop_map(|code| Input::Exited { code }),
            1 => Just(Input::Lost),
        ];
        (0u64..120_000, kind)
    }

    proptest! {
        /// CMD-10: whatever combination of layers acts, in whatever order.
        #[test]
        fn there_is_exactly_one_result(inputs in proptest::collection::vec(input(), 0..60)) {
            let mut watched = watch();
            let (mut now, mut seen) = (0, Vec::new());
            for (later, input) in inputs {
                now += later;
                seen.extend(watched.on(input, now));
            }
            let rest = pass(&mut watched, now, now + 400 * SECOND);
            seen.extend(rest.into_iter().map(|(_, action)| action));
            let results = seen.iter().filter(|action| matches!(action, Action::Complete { .. })).count();
            prop_assert_eq!(results, 1);
            prop_assert!(matches!(seen.last(), Some(Action::Complete { .. })), "nothing comes after");
            let kills = seen.iter().filter(|action| matches!(action, Action::Kill { .. })).count();
            prop_assert!(kills <= 1);
        }
    }
}
