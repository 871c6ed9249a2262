//! What holds whatever is reserved, charged and released, in whatever order, at whatever time.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

#[derive(Debug, Clone)]
enum Move {
    Reserve(Request),
    /// A part of the `of`-th open reservation.
    Part {
        of: usize,
        seat: u32,
        unit: Unit,
        cents: u64,
    },
    /// Against the `of`-th open reservation, up to three times what it holds.
    Charge {
        of: usize,
        permille: u64,
    },
    /// A bill that nobody reserved for.
    Bill(Account, u64),
    Release {
        of: usize,
    },
    /// Forwards or, sometimes, back.
    Clock {
        hours: i64,
    },
    Session,
}

fn accounts() -> impl Strategy<Value = Account> {
    let purposes = vec![Purpose::Work, Purpose::Work, Purpose::Retry, Purpose::Council];
    let priorities = vec![Priority::Low, Priority::Medium, Priority::Critical];
    let crews = vec![Crew::Standing, Crew::Extra];
    (
        1u32..4,
        prop::option::of(1u32..5),
        prop::option::of(1u32..4),
        select(crews),
        select(purposes),
        select(priorities),
    )
        .prop_map(|(mission, task, seat, crew, purpose, priority)| Account {
            mission: MissionId(mission),
            // Tasks are counted over the project, so one belongs to one mission.
            task: task.map(|task| TaskId(mission * 10 + task)),
            agent: seat.map(developer),
            crew,
            purpose,
            priority,
        })
}

fn units() -> impl Strategy<Value = Unit> {
    select(vec![Unit::Attempt, Unit::Attempt, Unit::Call])
}

fn requests() -> impl Strategy<Value = Request> {
    (accounts(), units(), 0u64..400, 0u64..5_000).prop_map(|(account, unit, cents, tokens)| {
        let usd = Usd::cents(cents);
        Request { account, unit, usd, estimate: usd, tokens }
    })
}

/// `overspending` decides whether charges may pass what was reserved for them.
fn moves(overspending: bool) -> impl Strategy<Value = Vec<Move>> {
    let permille: u64 = if overspending { 3_000 } else { 1_000 };
    let bills = u32::from(overspending);
    let one = prop_oneof![
        6 => requests().prop_map(Move::Reserve),
        3 => (0usize..9, 1u32..4, units(), 0u64..200)
            .prop_map(|(of, seat, unit, cents)| Move::Part { of, seat, unit, cents }),
        5 => (0usize..9, 0..=permille).prop_map(|(of, permille)| Move::Charge { of, permille }),
        bills => (accounts(), 0u64..300).prop_map(|(account, cents)| Move::Bill(account, cents)),
        4 => (0usize..9).prop_map(|of| Move::Release { of }),
        2 => (-2i64..40).prop_map(|hours| Move::Clock { hours }),
        1 => Just(Move::Session),
    ];
    prop::collection::vec(one, 1..120)
}

fn policy() -> Policy {
    let cents = |cents| Some(Usd::cents(cents));
    let caps = Caps {
        call_usd_max: cents(300),
        task_usd_max: cents(700),
        agent_usd_max: cents(1_200),
        mission_usd_max: cents(2_000),
        session_usd_max: cents(2_500),
        day_usd_max: cents(1_500),
        week_usd_max: cents(3_000),
        month_usd_max: cents(4_000),
        project_usd_max: cents(6_000),
        retries_usd_max: cents(200),
        council_day_usd_max: cents(150),
        council_week_usd_max: cents(250),
        scaling_day_usd_max: cents(400),
    };
    Policy { caps, ..Policy::default() }
}

#[derive(Debug, Clone)]
enum Fact {
    Reserved(Reservation),
    Charged(Charge),
    Released(ReservationId),
    Session(Timestamp),
}

fn apply(ledger: &mut Ledger, fact: &Fact) {
    match fact {
        Fact::Reserved(reservation) => ledger.reserved(reservation),
        Fact::Charged(charge) => {
            ledger.charged(charge);
        }
        Fact::Released(id) => {
            ledger.released(*id);
        }
        Fact::Session(at) => ledger.session_started(*at),
    }
}

/// A run: a ledger, what happened to it, and the plainest books that can be kept beside it.
struct Run {
    ledger: Ledger,
    now: Timestamp,
    facts: Vec<Fact>,
    scopes_seen: BTreeSet<Scope>,
    charged: Usd,
    excess: Usd,
}

impl Run {
    fn new() -> Run {
        Run {
            ledger: Ledger::new(policy()),
            now: NOON,
            facts: Vec::new(),
            scopes_seen: BTreeSet::new(),
            charged: Usd::ZERO,
            excess: Usd::ZERO,
        }
    }

    fn nth_open(&self, of: usize) -> Option<&Open> {
        let count = self.ledger.open.len();
        self.ledger.open.iter().nth(of.checked_rem(count)?).map(|(_, open)| open)
    }

    fn record(&mut self, fact: Fact) {
        if let Fact::Reserved(reservation) = &fact {
            self.scopes_seen.extend(reservation.scopes().list().into_iter().flatten());
        }
        apply(&mut self.ledger, &fact);
        self.facts.push(fact);
    }

    fn charge(&mut self, reservation: Option<ReservationId>, account: Account, usd: Usd) {
        let (began_at, at) = (self.now, self.now);
        let charge = Charge { reservation, account, usd, tokens: 10, began_at, at };
        self.charged += usd;
        self.excess += self.ledger.settle(&charge).excess;
        self.record(Fact::Charged(charge));
    }

    fn step(&mut self, step: Move) {
        match step {
            Move::Reserve(request) => {
                if let Ok(reservation) = self.ledger.reserve(&request, self.now) {
                    self.record(Fact::Reserved(reservation));
                }
            }
            Move::Part { of, seat, unit, cents } => {
                let Some(open) = self.nth_open(of) else { return };
                let parent = open.reservation.id;
                let (agent, usd) = (Some(developer(seat)), Usd::cents(cents));
                let request = PartRequest { parent, agent, unit, usd, tokens: 5 };
                if let Ok(reservation) = self.ledger.reserve_part(&request) {
                    self.record(Fact::Reserved(reservation));
                }
            }
            Move::Charge { of, permille } => {
                let Some(open) = self.nth_open(of) else { return };
                let usd = Usd::micros(open.left.as_micros() * permille / 1_000);
                let (id, account) = (open.reservation.id, open.reservation.account.clone());
                self.charge(Some(id), account, usd);
            }
            Move::Bill(account, cents) => self.charge(None, account, Usd::cents(cents)),
            Move::Release { of } => {
                let Some(id) = self.nth_open(of).map(|open| open.reservation.id) else { return };
                self.record(Fact::Released(id));
            }
            Move::Clock { hours } => {
                let ms = hours.unsigned_abs() * 3_600_000;
                self.now = match hours < 0 {
                    true => Timestamp(self.now.0 - ms),
                    false => self.now.plus_ms(ms),
                };
            }
            Move::Session => self.record(Fact::Session(self.now)),
        }
    }

    fn check_caps(&self) -> Result<(), TestCaseError> {
        for scope in &self.scopes_seen {
            let purse = self.ledger.purse(*scope);
            if let Some(cap) = self.ledger.cap(*scope) {
                prop_assert!(purse.committed() <= cap + purse.excess, "{scope:?}: {purse:?}");
            }
            let open = self.ledger.open.iter().map(|(_, open)| open);
            let counted =
                open.filter(|open| open.reservation.scopes().list().contains(&Some(*scope)));
            let reserved = counted.fold(Usd::ZERO, |sum, open| sum + open.left);
            prop_assert_eq!(purse.reserved, reserved, "{:?}", scope);
        }
        Ok(())
    }

    /// Every cent is counted once by every way of counting.
    fn check_conservation(&self) -> Result<(), TestCaseError> {
        let ledger = &self.ledger;
        let sum = |purses: &mut dyn Iterator<Item = Purse>| {
            purses.fold(Purse::default(), |sum, purse| Purse {
                spent: sum.spent + purse.spent,
                reserved: sum.reserved + purse.reserved,
                excess: sum.excess + purse.excess,
            })
        };
        let whole = ledger.purse(Scope::Project);
        prop_assert_eq!((whole.spent, whole.excess), (self.charged, self.excess));
        let missions: Vec<MissionId> = (1..4).map(MissionId).collect();
        for mission in &missions {
            let of_mission = ledger.purse(Scope::Mission(*mission));
            prop_assert_eq!(sum(&mut ledger.by_task(*mission).map(|(_, p)| p)), of_mission);
            prop_assert_eq!(sum(&mut ledger.by_agent(*mission).map(|(_, p)| p)), of_mission);
        }
        let by_mission = missions.iter().map(|mission| ledger.purse(Scope::Mission(*mission)));
        prop_assert_eq!(sum(&mut by_mission.into_iter()), whole);
        prop_assert_eq!(sum(&mut ledger.by_day().map(|(_, purse)| purse)), whole);
        let spent = |scope| ledger.purse(scope).spent;
        for (day, of_day) in ledger.by_day() {
            let pools = Pool::ALL.map(|pool| spent(Scope::Pool(day, pool)));
            let pools = pools.into_iter().fold(Usd::ZERO, |sum, pool| sum + pool);
            prop_assert!(pools <= of_day.spent, "a bill has no pool, all else has");
            prop_assert!(of_day.spent.saturating_sub(pools) <= self.excess);
        }
        Ok(())
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// The promise of the whole ledger: nobody who keeps to his reservation ever passes a cap.
    #[test]
    fn spent_and_reserved_never_pass_a_cap(moves in moves(false)) {
        let mut run = Run::new();
        for step in moves {
            run.step(step);
            run.check_caps()?;
            prop_assert_eq!(run.excess, Usd::ZERO);
        }
        run.check_conservation()?;
    }

    /// With overspending, a cap is passed by exactly what is on record as excess, and no more.
    #[test]
    fn an_overspend_is_the_only_way_past_a_cap(moves in moves(true)) {
        let mut run = Run::new();
        for step in moves {
            run.step(step);
            run.check_caps()?;
        }
        run.check_conservation()?;
    }

    /// When all work has ended nothing is held back, and releasing again changes nothing.
    #[test]
    fn all_that_was_reserved_goes_back_once(moves in moves(true)) {
        let mut run = Run::new();
        for step in moves {
            run.step(step);
        }
        let ids: Vec<ReservationId> = run.ledger.open.keys().copied().collect();
        for id in &ids {
            run.record(Fact::Released(*id));
        }
        let ended = run.ledger.clone();
        for id in ids {
            prop_assert_eq!(run.ledger.released(id), Usd::ZERO);
        }
        prop_assert_eq!(&run.ledger, &ended);
        prop_assert_eq!(run.ledger.purse(Scope::Project).reserved, Usd::ZERO);
        prop_assert_eq!(run.ledger.tokens().week(NOON).reserved, 0);
        run.check_caps()?;
        run.check_conservation()?;
    }

    /// What is asked before a bill is paid is answered as it would be after it, without a copy of
    /// all books to try it on.
    #[test]
    fn whoever_asks_behind_a_bill_hears_what_they_would_after_it(
        moves in moves(true),
        request in requests(),
        (of, permille, tokens) in (0usize..9, 0u64..3_000, 0u64..9_000),
    ) {
        let mut run = Run::new();
        let week = WeekTokens { max: 60_000, when_full: WhenFull::Refuse };
        let limited = TokenPolicy { mission_max: Some(30_000), week: Some(week) };
        run.ledger.configured(Policy { tokens: limited, ..policy() });
        for step in moves {
            // An attempt and its sub-agents are one agent's.
            let foreign = |of: usize, seat: u32| {
                let agent = run.nth_open(of).map(|open| open.reservation.account.agent);
                agent != Some(Some(developer(seat)))
            };
            if matches!(step, Move::Part { of, seat, .. } if foreign(of, seat)) {
                continue;
            }
            run.step(step);
        }
        let Some(open) = run.nth_open(of) else { return Ok(()) };
        let usd = Usd::micros(open.reservation.usd.as_micros() * permille / 1_000);
        let (reservation, account) = (Some(open.reservation.id), open.reservation.account.clone());
        let (began_at, at) = (run.now, run.now);
        let bill = Charge { reservation, account, usd, tokens, began_at, at };
        for bill in [Charge { reservation: None, ..bill.clone() }, bill] {
            let thought = run.ledger.reserve_behind(&request, &bill, run.now);
            let mut paid = run.ledger.clone();
            bill.reservation.into_iter().for_each(|id| paid.parts_released(id));
            paid.charged(&bill);
            prop_assert_eq!(thought, paid.reserve(&request, run.now));
        }
    }

    /// The same facts give the same ledger.
    #[test]
    fn a_replay_is_the_ledger(moves in moves(true)) {
        let mut run = Run::new();
        for step in moves {
            run.step(step);
        }
        let mut replayed = Ledger::new(policy());
        for fact in &run.facts {
            apply(&mut replayed, fact);
        }
        prop_assert_eq!(replayed, run.ledger);
    }
}
