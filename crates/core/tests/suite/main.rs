//! All tests of the core that need no private part, in one program: it links once.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agent_rules;
mod approval;
mod asking_rules;
mod completion;
mod council;
mod council_merge_rules;
mod council_rules;
mod dependencies;
mod drill_rules;
mod engine_properties;
mod escalation;
mod failure_rules;
mod fixture;
mod flaky_rules;
mod found;
mod gate_rules;
mod gates;
mod journals;
mod lost_rules;
mod makespan;
mod merge_model;
mod merge_queue;
mod merge_rules;
mod money_rules;
mod named_refusals;
mod nobody_rules;
mod payer_rules;
mod people_rules;
mod plan_rules;
mod plans;
mod preemption_rules;
mod profile_rules;
mod provider_rules;
mod queue;
mod queue_rules;
mod rollback;
mod rollback_rules;
mod rules;
mod scaling;
mod sub_agent_rules;
mod taken_back_rules;
mod wave_rules;
mod why_rules;
