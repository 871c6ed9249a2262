//! The list of planted bugs, each with what it does.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A straggler's result counts for the attempt that replaced it.
    NoFence,
    /// A straggler's check results count for what is being checked now.
    OldVerdict,
    /// A candidate passes whatever its checks say.
    BlindQueue,
    /// A red phase is accepted although nothing fails.
    RedAnything,
    /// A report without all checks is judged as if it were complete.
    HalfChecked,
    /// Tests may replace what they test.
    TrustsMocks,
    /// An agent that prints nothing is spoken of at once.
    CriesWolf,
    /// "Done" is believed, whichever files were touched.
    Trespass,
    /// "Done" is believed without a change.
    Gullible,
    /// An approval of some commit approves the proposed one.
    ApproveAny,
    /// A heartbeat renews nothing.
    DeafToHeartbeats,
    /// A lease never expires.
    EternalLease,
    /// A failed task is tried again for ever.
    NeverGivesUp,
    /// What an attempt spent is not recorded.
    FreeWork,
    /// Spending more than was reserved has no consequence.
    Generous,
    /// A pause does not stop what is in flight.
    HalfPaused,
    /// Attempts survive the restart of their host.
    Immortal,
    /// A branch that somebody moved counts as advanced.
    MovedIsMerged,
    /// The order of a plan is forgotten.
    Unordered,
    /// Time passes, and nothing follows from it.
    Timeless,

    /// A person may have as many agents as they like.
    Overstaffed,
    /// Whoever is sent away, it is somebody of the configured team.
    WrongLeaver,
    /// What the gateway says about rate limits is not heard.
    DeafToLimits,
    /// A full machine is none of its business.
    DeafToMachine,
    /// "Done" is believed, wherever the agent had no business.
    Wanderer,
    /// Agents are added although it must not be.
    Reckless,

    /// What is missing is planned for ever.
    EndlessGaps,
    /// An operation is done before those it builds on.
    SkipsOperations,
    /// The tree with a finished operation is not the one that is kept.
    LosesWork,
    /// An attempt makes room for whoever waits.
    MakesRoomForAnyone,
    /// A step can be done again.
    CountsTwice,
    /// Nobody sees that tasks are alike.
    NoBatches,

    /// An attempt starts without its money.
    OnCredit,
    /// What was reserved for an attempt without a bill is held for ever.
    Hoarder,
    /// The money of attempts that died with their host is held although nobody can bill it.
    WaitsForTheDead,
    /// A bill that comes late is thrown away.
    LostBill,
    /// A bill that comes twice is paid twice.
    PaidTwice,
    /// A sub-agent may spend as much as its attempt, whatever others have of that.
    SharesTooMuch,
    /// The watchdog sleeps.
    SleepyWatchdog,
    /// What runs goes on after the watchdog's grace.
    EndlessGrace,
    /// Spending goes on by itself once the grace is over.
    ResumesItself,

    /// A task is blamed for what its host could not do.
    BlamesTheTask,
    /// What needs a task that gave up is not told.
    HalfBuried,
    /// A dead letter says nothing.
    BlankLetter,
    /// People are told of everything at once, every time.
    Shrill,
    /// People are told of nothing.
    Silent,
    /// A mission goes on, however many of its tasks give up.
    Undeterred,
    /// Nobody hears that many tasks fail before the mission pauses for it.
    NeverWarns,
    /// A task may take down as many hosts as there are.
    LosesEveryHost,
    /// A task is given up with the first host that is lost.
    BlamesAtOnce,
    /// A requeued task frees even what another one blocks.
    FreesTooMuch,

    /// Whoever came last is served first.
    QueueJumper,
    /// One agent at work is thought to be enough.
    Idler,

    /// A lane that is built counts as tested.
    LandsUntested,
    /// The first of a batch that failed is blamed for all of it.
    BlamesTheFirst,
    /// The last task of a lane that landed is never told.
    ForgetsAPassenger,
    /// A conflict is rebased again and again, and nobody is asked.
    RebasesForEver,
    /// Whatever fails is said to have failed before.
    ExcusesAnything,
    /// Of a rollback with all that hangs on it, only the first is taken back.
    HalfRolledBack,
    /// What needs a task that is being taken back starts nevertheless.
    BuildsOnSand,
    /// Whoever works on what needs a task that is being taken back is not stopped.
    StopsNobody,
    /// A test that does both on one commit is believed for ever.
    Credulous,
    /// Of a wave that falls, or is taken back, only the last goes.
    HalfAWave,
    /// The others of a wave go on when one of them has given up.
    WaveGoesOn,

    /// Files are not locked.
    Lockless,
    /// Somebody else's lock is no reason to stay away.
    LockThief,
    /// Locks end with their time, also those of what is in hand.
    LosesFiles,
    /// Nobody hears of work that nobody may do.
    Unheard,

    /// A rate limit counts as a failure.
    ParkedCounts,
    /// A rate limit is forgotten as soon as it is known.
    DeafToParking,
    /// A breaker never opens.
    NeverOpens,
    /// A breaker never closes.
    NeverCloses,
    /// Work goes to whoever is first in the catalogue.
    FirstInTheBook,
    /// All work goes to the cheapest models.
    AlwaysEco,
    /// A stop in order is taken for a lost host.
    CountsStops,
    /// A retry is paid as if nothing had failed before.
    ForgetsFailures,
    /// Nobody is asked about anything but the delivery.
    AsksNobody,
    /// One person is enough for everything.
    OneIsEnough,
    /// An approval is taken for the commit that waits, whichever was seen.
    ApprovesUnseen,
    /// One person's word counts as often as it is given.
    HearsTwice,
    /// Orders of people without the right to them are carried out.
    ObeysAnybody,
    /// What was approved stays so when it is written anew.
    KeepsOldWord,
    /// What goes ahead without asking does so in silence.
    TellsNobody,

    /// Two votes of one family count as two.
    OneFamily,
    /// Members are asked before there is money for them.
    CouncilOnCredit,
    /// The votes are opened as soon as there is one.
    PeeksAtVotes,
    /// "Looks good" is a vote.
    CountsPraise,
    /// No drill is ever called beside a review.
    NeverDrills,
    /// A drill can be told from the review beside it.
    TellsOfDrills,
    /// What most want is done, although its checks fail.
    MajorityRules,
    /// A review that says no lets the change pass.
    NodsThrough,
    /// A council sits on when all spending has been stopped.
    SitsOn,
}

impl Mutant {
    pub const ALL: &'static [Mutant] = &[
        Mutant::NoFence,
        Mutant::OldVerdict,
        Mutant::BlindQueue,
        Mutant::RedAnything,
        Mutant::HalfChecked,
        Mutant::TrustsMocks,
        Mutant::CriesWolf,
        Mutant::Trespass,
        Mutant::Gullible,
        Mutant::ApproveAny,
        Mutant::DeafToHeartbeats,
        Mutant::EternalLease,
        Mutant::NeverGivesUp,
        Mutant::FreeWork,
        Mutant::Generous,
        Mutant::HalfPaused,
        Mutant::Immortal,
        Mutant::MovedIsMerged,
        Mutant::Unordered,
        Mutant::Timeless,
        Mutant::Overstaffed,
        Mutant::WrongLeaver,
        Mutant::DeafToLimits,
        Mutant::Reckless,
        Mutant::DeafToMachine,
        Mutant::Wanderer,
        Mutant::EndlessGaps,
        Mutant::SkipsOperations,
        Mutant::LosesWork,
        Mutant::MakesRoomForAnyone,
        Mutant::CountsTwice,
        Mutant::NoBatches,
        Mutant::OnCredit,
        Mutant::Hoarder,
        Mutant::WaitsForTheDead,
        Mutant::LostBill,
        Mutant::PaidTwice,
        Mutant::SharesTooMuch,
        Mutant::SleepyWatchdog,
        Mutant::EndlessGrace,
        Mutant::ResumesItself,
        Mutant::BlamesTheTask,
        Mutant::HalfBuried,
        Mutant::BlankLetter,
        Mutant::Shrill,
        Mutant::Silent,
        Mutant::Undeterred,
        Mutant::NeverWarns,
        Mutant::LosesEveryHost,
        Mutant::BlamesAtOnce,
        Mutant::FreesTooMuch,
        Mutant::QueueJumper,
        Mutant::Idler,
        Mutant::LandsUntested,
        Mutant::BlamesTheFirst,
        Mutant::ForgetsAPassenger,
        Mutant::RebasesForEver,
        Mutant::ExcusesAnything,
        Mutant::HalfRolledBack,
        Mutant::BuildsOnSand,
        Mutant::StopsNobody,
        Mutant::Credulous,
        Mutant::HalfAWave,
        Mutant::WaveGoesOn,
        Mutant::Lockless,
        Mutant::LockThief,
        Mutant::LosesFiles,
        Mutant::Unheard,
        Mutant::ParkedCounts,
        Mutant::DeafToParking,
        Mutant::NeverOpens,
        Mutant::NeverCloses,
        Mutant::FirstInTheBook,
        Mutant::AlwaysEco,
        Mutant::CountsStops,
        Mutant::ForgetsFailures,
        Mutant::AsksNobody,
        Mutant::OneIsEnough,
        Mutant::ApprovesUnseen,
        Mutant::HearsTwice,
        Mutant::ObeysAnybody,
        Mutant::KeepsOldWord,
        Mutant::TellsNobody,
        Mutant::OneFamily,
        Mutant::CouncilOnCredit,
        Mutant::PeeksAtVotes,
        Mutant::CountsPraise,
        Mutant::NeverDrills,
        Mutant::TellsOfDrills,
        Mutant::MajorityRules,
        Mutant::NodsThrough,
        Mutant::SitsOn,
    ];
}
