//! The rules of the project: what holds for all its missions together.
//!
//! A mission keeps the rules that it opened with ([`crate::policy::Policy`]); these can change
//! while missions run, and what they change is decided anew from then on. The journal says who
//! changed them and when.

use serde::{Deserialize, Serialize};

use crate::agents::TeamRules;
use crate::breaker::{BreakerPolicy, InvalidBreakerPolicy};
use crate::council::{CouncilPolicy, InvalidCouncil};
use crate::escalation::{InvalidNotices, NoticePolicy};
use crate::flaky::{FlakyPolicy, InvalidFlaky};
use crate::locks::{InvalidLockPolicy, LockPolicy};
use crate::policy::is_default;
use crate::queue::{
    Domains, InvalidDomains, InvalidQueuePolicy, InvalidTerritory, QueuePolicy, Territories,
};
use crate::scaling::{InvalidScaling, ScalingRules};
use crate::{ledger, price, rate, routing};

/// One field a family of decisions, each with a default, so that journals written before the
/// family was there replay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub team: TeamRules,
    pub scaling: ScalingRules,
    /// Caps, pools, the watchdog and the other rules of spending.
    pub money: ledger::Policy,
    /// What models cost.
    pub prices: price::Prices,
    /// How often people are told that they are needed.
    pub notices: NoticePolicy,
    pub queue: QueuePolicy,
    pub locks: LockPolicy,
    pub territories: Territories,
    pub domains: Domains,
    /// Which model does which work. Without it, agents use what they are configured to use.
    pub routing: Option<routing::Policy>,
    /// What providers take in a minute.
    pub rate: rate::Policy,
    /// After how many failures in a row nobody tries any more.
    pub breakers: BreakerPolicy,
    /// Who is asked when retries do not help. Without it, a person is.
    pub council: Option<CouncilPolicy>,
    /// When a test that does both on one commit is not believed, and when it is again.
    #[serde(skip_serializing_if = "is_default")]
    pub flaky: FlakyPolicy,
}

/// Rules that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    #[error(transparent)]
    Scaling(#[from] InvalidScaling),
    #[error(transparent)]
    Money(#[from] ledger::InvalidPolicy),
    #[error(transparent)]
    Prices(#[from] price::InvalidPrices),
    #[error(transparent)]
    Notices(#[from] InvalidNotices),
    #[error(transparent)]
    Queue(#[from] InvalidQueuePolicy),
    #[error(transparent)]
    Locks(#[from] InvalidLockPolicy),
    #[error(transparent)]
    Territories(#[from] InvalidTerritory),
    #[error(transparent)]
    Domains(#[from] InvalidDomains),
    #[error(transparent)]
    Routing(#[from] routing::InvalidCatalogue),
    #[error(transparent)]
    Rate(#[from] rate::InvalidPolicy),
    #[error(transparent)]
    Breakers(#[from] InvalidBreakerPolicy),
    #[error(transparent)]
    Council(#[from] InvalidCouncil),
    #[error(transparent)]
    Flaky(#[from] InvalidFlaky),
}

impl Settings {
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        self.scaling.validate()?;
        self.money.validate()?;
        self.prices.validate()?;
        self.notices.validate()?;
        self.queue.validate()?;
        self.locks.validate()?;
        self.territories.validate()?;
        self.domains.validate()?;
        if let Some(routing) = &self.routing {
            routing.validate()?;
        }
        self.rate.validate()?;
        self.breakers.validate()?;
        self.flaky.validate()?;
        if let Some(council) = &self.council {
            council.validate()?;
            let routed = self.routing.as_ref();
            routed.map_or(Ok(()), |routing| council.validate_within(&routing.models))?;
        }
        Ok(())
    }
}
