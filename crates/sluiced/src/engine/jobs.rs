// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of an administrator, which take several turns.

use sluiced_protocol::{Failure, FailureKind, MapName, Outcome, Request, Response, Selection};

use super::Engine;
use super::catalogue::Entry;
use super::stream::Phase;
use super::tasks::{Target, Task};
use crate::cgroup::{CgroupError, Cgroups};
use crate::kernel::Kernel;
use crate::store::{MapId, Store, StoreError};

/// Chosen by the caller, and returned with the response.
pub type JobId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Attach,
    Detach,
    Forget,
}

pub struct Job {
    id: JobId,
    verb: Verb,
    steps: Vec<Step>,
}

/// A map of a job.
struct Step {
    map: MapId,
    name: MapName,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    New,
    /// Begun.
    Waiting,
    Done(Option<String>),
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// The response comes by `take_responses`.
    pub fn request(&mut self, id: JobId, request: Request) {
        match self.begin_job(id, request) {
            Ok(job) => self.jobs.push(job),
            Err(response) => self.responses.push((id, response)),
        }
    }

    pub fn take_responses(&mut self) -> Vec<(JobId, Response)> {
        std::mem::take(&mut self.responses)
    }

    fn begin_job(&mut self, id: JobId, request: Request) -> Result<Job, Response> {
        let (verb, selection) = match request {
            Request::Status => return Err(Response::Status(self.status())),
            Request::Attach(selection) => (Verb::Attach, selection),
            Request::Detach(selection) => (Verb::Detach, selection),
            Request::Forget(map) => (Verb::Forget, Selection::Map(map)),
        };
        if let Some(failure) = &self.failure {
            return Err(failed(FailureKind::Store, failure.text().to_owned()));
        }
        let maps = match selection {
            Selection::All => self.selected(verb),
            Selection::Map(name) => vec![self.find(&name)?],
        };
        let attached = maps.iter().filter_map(|map| self.catalogue.get(*map));
        let mut attached = attached.filter(|entry| entry.stream.is_some());
        if let (Verb::Forget, Some(entry)) = (verb, attached.next()) {
            let text = format!(
                "{} is attached; remove it with 'sluice map rm', or detach it first",
                entry.map
            );
            return Err(failed(FailureKind::Attached, text));
        }
        let entries = maps.iter().filter_map(|map| self.catalogue.get(*map));
        let steps = entries.map(|entry| Step {
            map: entry.map.id,
            name: entry.map.map_name(),
            state: State::New,
        });
        Ok(Job {
            id,
            verb,
            steps: steps.collect(),
        })
    }

    fn find(&self, name: &MapName) -> Result<MapId, Response> {
        let found = self.catalogue.find(&name.path.0, &name.name.0);
        found.ok_or_else(|| {
            let text = format!(
                "no map '{}' of the cgroup {} is stored; see 'sluice store status'",
                name.name, name.path
            );
            failed(FailureKind::NotFound, text)
        })
    }

    /// Those that the verb changes: an orphan cannot be attached.
    fn selected(&self, verb: Verb) -> Vec<MapId> {
        let is_selected = |entry: &&Entry| match verb {
            Verb::Attach => entry.stream.is_none() && self.cgroups.scope(&entry.map.path).is_ok(),
            Verb::Detach | Verb::Forget => entry.stream.is_some() || entry.busy,
        };
        let selected = self.catalogue.iter().filter(is_selected);
        selected.map(|entry| entry.map.id).collect()
    }

    pub(super) fn advance_jobs(&mut self) {
        for mut job in std::mem::take(&mut self.jobs) {
            for step in &mut job.steps {
                step.state = self.advance(job.verb, step);
            }
            match job.is_done() {
                true => self
                    .responses
                    .push((job.id, Response::Done(job.outcomes()))),
                false => self.jobs.push(job),
            }
        }
    }

    fn advance(&mut self, verb: Verb, step: &Step) -> State {
        if let State::Done(_) = step.state {
            return step.state.clone();
        }
        if let Some(failure) = &self.failure {
            return State::Done(Some(failure.text().to_owned()));
        }
        let Some(entry) = self.catalogue.get(step.map) else {
            let error = (verb != Verb::Forget).then(|| "it was removed meanwhile".to_owned());
            return State::Done(error);
        };
        if entry.busy {
            return step.state.clone();
        }
        match verb {
            Verb::Attach => self.advance_attach(step),
            Verb::Detach => self.advance_detach(step),
            Verb::Forget => self.advance_forget(step),
        }
    }

    fn advance_attach(&mut self, step: &Step) -> State {
        let Some(entry) = self.catalogue.get(step.map) else {
            return step.state.clone();
        };
        if let Some(stream) = entry.stream {
            let is_changing = self.is_restoring(stream) || self.detaching.contains_key(&stream);
            return match is_changing {
                true => step.state.clone(),
                false => State::Done(self.loss_of(stream)),
            };
        }
        if step.state == State::Waiting {
            let problem = entry.problem.as_ref().map(|problem| problem.text.clone());
            let unknown = "it was closed at once; see the log of sluiced".to_owned();
            return State::Done(Some(problem.unwrap_or(unknown)));
        }
        match self.cgroups.scope(&entry.map.path) {
            Ok(_) => {
                self.begin(step.map, Target::Cgroup, false);
                State::Waiting
            }
            Err(CgroupError::Gone) => State::Done(Some(
                "its cgroup does not exist; create the cgroup first".to_owned(),
            )),
            Err(CgroupError::NoResources(text) | CgroupError::Unknown(text)) => {
                State::Done(Some(text))
            }
        }
    }

    fn advance_detach(&mut self, step: &Step) -> State {
        let Some(entry) = self.catalogue.get(step.map) else {
            return step.state.clone();
        };
        let (detached, Some(stream)) = (entry.map.detached, entry.stream) else {
            return match (entry.map.detached, &step.state) {
                (true, _) => State::Done(None),
                (false, _) => self.mark_detached(step.map),
            };
        };
        if let Some(loss) = self.loss_of(stream) {
            return State::Done(Some(loss));
        }
        if self.is_restoring(stream) || self.detaching.contains_key(&stream) {
            return step.state.clone();
        }
        match step.state {
            State::Waiting if !detached => State::Done(Some(
                "it is changed all the time; stop the programs that change it, and repeat the command"
                    .to_owned(),
            )),
            _ => {
                self.begin_detach(stream);
                self.mark_detached(step.map)
            }
        }
    }

    fn mark_detached(&mut self, map: MapId) -> State {
        self.catalogue.set_busy(map, true);
        self.tasks.push(Task::Detached {
            map,
            detached: true,
        });
        State::Waiting
    }

    fn advance_forget(&mut self, step: &Step) -> State {
        match self.is_live(step.map) {
            true => State::Done(Some("it was opened meanwhile".to_owned())),
            false => {
                self.remove_later(step.map);
                State::Waiting
            }
        }
    }

    /// The task of a map was not stored.
    pub(super) fn job_failed(&mut self, map: MapId, error: &StoreError) {
        let steps = self.jobs.iter_mut().flat_map(|job| &mut job.steps);
        for step in steps.filter(|step| step.map == map && step.state == State::Waiting) {
            step.state = State::Done(Some(error.text.clone()));
        }
    }

    fn is_restoring(&self, stream: u64) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.phase == Phase::Restoring)
    }

    fn loss_of(&self, stream: u64) -> Option<String> {
        match &self.streams.get(&stream)?.phase {
            Phase::Lost(text) => Some(text.clone()),
            Phase::Restoring | Phase::Live => None,
        }
    }
}

impl Job {
    fn is_done(&self) -> bool {
        self.steps
            .iter()
            .all(|step| matches!(step.state, State::Done(_)))
    }

    fn outcomes(self) -> Vec<Outcome> {
        let outcome = |step: Step| Outcome {
            map: step.name,
            error: match step.state {
                State::Done(error) => error,
                State::New | State::Waiting => None,
            },
        };
        self.steps.into_iter().map(outcome).collect()
    }
}

fn failed(kind: FailureKind, text: String) -> Response {
    Response::Failed(Failure { kind, text })
}
