//! Properties of plans: what must hold for any plan, any edit and any bytes.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::checklist::{Checklist, Source, breakdown};
use kapelle_core::plan::batch::{BatchPolicy, Batches};
use kapelle_core::plan::draft;
use kapelle_core::plan::hunk;
use kapelle_core::plan::operation::{Change, FileOperation, resume};
use kapelle_core::plan::research::Research;
use kapelle_core::plan::sis::Sis;
use kapelle_core::plan::{Plan, PlanPolicy, PlannedTask};
use kapelle_core::session::Session;
use kapelle_core::{Actor, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

/// Lines over a small alphabet, so that repeats, which make places ambiguous, are frequent.
fn text() -> impl Strategy<Value = String> {
    let line =
        prop::sample::select(vec!["a", "b", "", "  a", "-x", "+x", "@@", "\\ no", "ä", "a\r"]);
    (prop::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, ends)| {
        let mut text = lines.join("\n");
        if ends && !text.is_empty() {
            text.push('\n');
        }
        text
    })
}

fn edit(change: Change) -> FileOperation {
    FileOperation { file_path: "f".into(), change }
}

/// The edit as a replacement of the shortest text around it that is there only once.
fn spelled(before: &str, after: &str) -> Option<FileOperation> {
    let same = |a: &str, b: &str| {
        a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
    };
    let mut head: usize = same(before, after);
    let reverse = |text: &str| text.chars().rev().collect::<String>();
    let mut tail: usize = same(&reverse(&before[head..]), &reverse(&after[head..]));
    loop {
        let old = &before[head..before.len() - tail];
        let twice = before.match_indices(old).count() > 1 || {
            let first = before.find(old)?;
            let next = first + before[first..].chars().next().map_or(1, char::len_utf8);
            before.get(next..).is_some_and(|rest| rest.contains(old))
        };
        if !old.is_empty() && !twice {
            let new = &after[head..after.len() - tail];
            let (old_string, new_string) = (old.to_owned(), new.to_owned());
            return Some(edit(Change::Replace { old_string, new_string }));
        }
        if head == 0 && tail == 0 {
            return None;
        }
        head = before[..head].char_indices().next_back().map_or(0, |(at, _)| at);
        let shown = &before[before.len() - tail..];
        tail -= shown.chars().next().map_or(0, char::len_utf8);
    }
}

/// JSON of any shape, with the names that our documents use.
fn json() -> impl Strategy<Value = Value> {
    let names = vec![
        "tasks",
        "task_id",
        "id",
        "title",
        "priority",
        "dependencies",
        "file_operations",
        "operation",
        "file_path",
        "line_range",
        "diff",
        "variables",
        "findings",
        "status",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["HIGH", "edit", "a", "../x", "@@ -1 +1 @@\n-a", ""])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let name = prop::sample::select(names.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..7).prop_map(|fields| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

/// Tasks that depend on earlier ones only, of few sorts, so that batches come about.
fn plan() -> impl Strategy<Value = Plan> {
    let task = (prop::collection::vec(any::<prop::sample::Index>(), 0..3), 0..3_u8, 0..4_u8);
    prop::collection::vec(task, 1..24).prop_map(|tasks| {
        let planned = tasks.into_iter().enumerate().map(|(n, (deps, folder, minutes))| {
            let deps: BTreeSet<usize> =
                deps.iter().filter(|_| n > 0).map(|dep| dep.index(n)).collect();
            PlannedTask {
                id: n.to_string(),
                title: "Add label".into(),
                dependencies: deps.into_iter().map(|dep| dep.to_string()).collect(),
                files: vec![format!("src/f{folder}.rs")],
                estimated_duration_minutes: Some(u32::from(minutes) * 4),
                ..PlannedTask::default()
            }
        });
        Plan { goal: None, tasks: planned.collect() }
    })
}

/// Whether everything can be done when the tasks of a batch are done as one.
fn can_be_done(plan: &Plan, batches: &Batches) -> bool {
    let unit = |id: &str| match batches.of_task(id) {
        Some(batch) => batch.tasks[0].clone(),
        None => id.to_owned(),
    };
    let mut waits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for task in &plan.tasks {
        let needs = task.dependencies.iter().map(|dep| unit(dep));
        waits.entry(unit(&task.id)).or_default().extend(needs);
    }
    while !waits.is_empty() {
        let free: Vec<String> = waits
            .iter()
            .filter(|(_, needs)| needs.iter().all(|need| !waits.contains_key(need)))
            .map(|(unit, _)| unit.clone())
            .collect();
        if free.is_empty() {
            return false;
        }
        free.iter().for_each(|unit| drop(waits.remove(unit)));
    }
    true
}

proptest! {
    #![proptest_config(config())]

    /// PLN-06: the two forms of an edit are two ways to say one thing.
    #[test]
    fn both_forms_of_any_edit_give_the_same_file(before in text(), after in text()) {
        prop_assume!(before != after);
        let (line_range, diff) = hunk::between(&before, &after);
        let pointed = edit(Change::Patch { line_range, diff });
        prop_assert_eq!(pointed.apply(Some(&before)), Ok(Some(after.clone())));
        if let Some(spelled) = spelled(&before, &after) {
            prop_assert_eq!(spelled.apply(Some(&before)), Ok(Some(after.clone())));
            let compressed = spelled.compressed(&before).unwrap();
            prop_assert_eq!(compressed.apply(Some(&before)), Ok(Some(after)));
        }
    }

    /// Killed after any operation, a second run leads to the same files (TSK-09).
    #[test]
    fn operations_resume_where_they_stopped(
        versions in prop::collection::vec(text(), 1..6),
        killed_at in any::<prop::sample::Index>(),
    ) {
        let mut operations = vec![edit(Change::Create { content: versions[0].clone() })];
        for pair in versions.windows(2).filter(|pair| pair[0] != pair[1]) {
            let (line_range, diff) = hunk::between(&pair[0], &pair[1]);
            operations.push(edit(Change::Patch { line_range, diff }));
        }
        let mut at_once = BTreeMap::new();
        let all = operations.len() as u32;
        prop_assert_eq!(resume(&operations, 0, &mut at_once), Ok(all));
        prop_assert_eq!(at_once.get("f"), versions.last());
        let mut in_two = BTreeMap::new();
        let part = killed_at.index(operations.len() + 1);
        resume(&operations[..part], 0, &mut in_two).unwrap();
        prop_assert_eq!(resume(&operations, part as u32, &mut in_two), Ok(all));
        prop_assert_eq!(in_two, at_once);
    }

    /// Outside data may be refused, and must not be able to do anything else.
    #[test]
    fn no_text_can_make_a_parser_panic(noise in "\\PC*", before in text(), diff in text()) {
        let _ = Plan::parse(&noise);
        let _ = Sis::parse(&noise);
        let _ = hunk::apply(&before, [1, 3], &noise);
        let _ = hunk::apply(&before, [1, 3], &format!("@@ -1 +1 @@\n{diff}"));
        let _ = hunk::apply(&before, [u32::MAX, u32::MAX], &format!("@@ -{noise} @@\n{diff}"));
        let _ = breakdown::under(std::slice::from_ref(&before), &format!("- {before}\n{noise}\n{diff}"));
        let _ = Checklist::generate(Source::Llm, &[], &noise);
        let _ = edit(Change::Replace { old_string: diff, new_string: noise }).apply(Some(&before));
    }

    #[test]
    fn no_json_can_make_a_parser_panic(document in json()) {
        let text = document.to_string();
        let _ = Plan::parse(&text);
        let _ = Sis::parse(&text);
        let _ = Session::parse(&text);
        let _ = Research::parse(&text);
    }

    /// A plan that is taken can be done in its order; that is what the check is for.
    #[test]
    fn a_plan_without_flaws_can_be_done_in_its_order(
        edges in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
    ) {
        let task = |n: usize| PlannedTask {
            id: n.to_string(),
            title: "t".into(),
            dependencies: edges.iter().filter(|(from, _)| *from == n).map(|(_, to)| to.to_string()).collect(),
            ..PlannedTask::default()
        };
        let plan = Plan { goal: None, tasks: (0..8).map(task).collect() };
        let forward = edges.iter().all(|(from, to)| to < from);
        prop_assert_eq!(plan.validate().is_ok(), forward);
    }

    /// Whatever the planners depend on, their plan is in order, or its circle is named.
    #[test]
    fn a_merged_plan_is_in_order_or_has_a_circle(
        edges in prop::collection::vec((0..6_usize, 0..6_usize), 0..8),
    ) {
        let task = |n: usize| {
            let deps: BTreeSet<String> =
                edges.iter().filter(|(from, _)| *from == n).map(|(_, to)| to.to_string()).collect();
            serde_json::json!({"task_id": n.to_string(), "priority": "LOW", "dependencies": deps,
                "estimated_duration_minutes": 1, "validation_criteria": {}, "file_operations": []})
        };
        let sis = |range: std::ops::Range<usize>| {
            let tasks: Vec<Value> = range.map(task).collect();
            Sis::parse(&serde_json::json!({"tasks": tasks}).to_string()).unwrap()
        };
        let planners = vec![("planner-1".to_owned(), sis(0..3)), ("planner-2".to_owned(), sis(3..6))];
        match draft::merge(None, planners, &PlanPolicy::default()) {
            Ok(draft) => prop_assert_eq!(draft.plan.validate(), Ok(())),
            Err(refused) => {
                let circles = refused.0.iter().map(ToString::to_string);
                let named = circles.filter(|f| f.contains("circle") || f.contains("itself")).count();
                prop_assert!(named > 0, "{}", refused);
            }
        }
    }

    /// Doing batches instead of tasks must not make the graph wait for itself.
    #[test]
    fn batches_never_deadlock_and_share_no_task(plan in plan()) {
        let batches = Batches::of(&plan, &BatchPolicy::default());
        prop_assert!(can_be_done(&plan, &batches));
        let members: Vec<&String> = batches.list().iter().flat_map(|b| &b.tasks).collect();
        let distinct: BTreeSet<&&String> = members.iter().collect();
        prop_assert_eq!(distinct.len(), members.len());
        prop_assert!(batches.list().iter().all(|b| (2..=6).contains(&b.tasks.len())));
        prop_assert_eq!(&Batches::of(&plan, &BatchPolicy::default()), &batches);
    }

    /// The counters are what a count of the steps would give, in whatever order they are done.
    #[test]
    fn progress_is_the_number_of_done_steps(done in prop::collection::vec(0..9_u32, 0..12)) {
        let mut list = Checklist::new((0..7).map(|n| n.to_string()).collect()).unwrap();
        for step in done {
            list.completed(step, Actor("a".into()), Timestamp(1));
            let counted = list.steps().iter().filter(|step| step.done.is_some()).count();
            prop_assert_eq!(list.progress().done as usize, counted);
            let open = list.steps().iter().find(|step| step.done.is_none());
            prop_assert_eq!(list.first_incomplete(), open);
        }
    }
}
