use std::cell::RefCell;

use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};

use super::*;

/// Collects news, and has no orders.
#[derive(Default)]
struct Listener(RefCell<Vec<String>>);

impl Control for Listener {
    fn reads(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn writes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watches(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn resumes_at(&self) -> Option<Instant> {
        None
    }

    fn take(&self) -> Option<crate::Asked> {
        None
    }

    fn flush(&self) {}

    fn has_work(&self) -> bool {
        false
    }

    fn has_process_orders(&self) -> bool {
        false
    }

    fn next_process_order(&self, _cell: &str) -> Option<(u64, ProcessOrder)> {
        None
    }

    fn has_guests(&self) -> bool {
        false
    }

    fn admit_guests(&self, _share: &dyn Fn() -> Result<jail::launch::SharedCell>) {}

    fn process_news(&self, news: ProcessNews<'_>) {
        self.0.borrow_mut().push(format!("{news:?}"));
    }

    fn has_room(&self) -> bool {
        true
    }
}

fn process(output: Vec<Output>, deadline: Option<Instant>) -> Process {
    Process {
        output,
        input: None,
        is_terminal: false,
        on_way: 0,
        deadline,
        wall: Duration::from_millis(5),
        why: None,
        status: None,
    }
}

#[test]
fn a_process_is_known_before_it_is_heard() {
    let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
    let mut processes = Processes::default();
    let output = vec![Output::new(ProcessStream::Stdout, from)];
    // As `spawned` leaves them.
    processes.running.insert(7, process(output, None));
    processes.answers.push((1, Ok(Some(42))));
    write(&to, b"first").unwrap();
    let listener = Listener::default();
    processes.read(&[(7, 0)], &listener);
    processes.report(&listener);
    let news = listener.0.into_inner();
    assert!(
        news.len() == 2 && news[0].starts_with("Done(1") && news[1].starts_with("Output(7"),
        "{news:?}"
    );
}

#[test]
fn a_process_ends_though_another_took_the_rest_of_its_output() {
    let (from, to) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
    let others = from.try_clone().unwrap();
    let mut processes = Processes::default();
    let output = vec![Output::new(ProcessStream::Stdout, from)];
    processes.running.insert(7, process(output, None));
    write(&to, b"rest").unwrap();
    processes.exited(7, 0);
    let listener = Listener::default();
    processes.report(&listener);
    assert!(listener.0.borrow().is_empty());
    // No descriptor shows what comes next.
    let next = processes.next_time().unwrap();
    assert!(next <= Instant::now() + LOOK_AGAIN);
    assert_eq!(read(&others, &mut [0; 4]), Ok(4));
    processes.report(&listener);
    assert_eq!(listener.0.into_inner(), ["Ended(7, 0, None)"]);
    assert_eq!(processes.next_time(), None);
}

#[test]
fn a_late_process_is_killed_again_until_init_has_the_order() {
    let began = Instant::now();
    let mut processes = Processes::default();
    let soon = began + Duration::from_secs(1);
    (processes.running).insert(1, process(Vec::new(), Some(began)));
    (processes.running).insert(2, process(Vec::new(), Some(soon)));
    (processes.running).insert(3, process(Vec::new(), None));
    let killed = RefCell::new(Vec::new());
    let kill = |has_room: bool| {
        let killed = &killed;
        move |number| {
            killed.borrow_mut().push(number);
            has_room
        }
    };
    processes.end_late(began, kill(false));
    assert_eq!(processes.running[&1].why, None);
    assert_eq!(processes.next_time(), Some(began + KILL_AGAIN));
    processes.end_late(began, kill(true));
    processes.end_late(began + KILL_AGAIN, kill(true));
    processes.end_late(began + 2 * KILL_AGAIN, kill(true));
    assert_eq!(*killed.borrow(), [1, 1]);
    assert_eq!(
        processes.running[&1].why.as_deref(),
        Some("its wall time of 5ms was over")
    );
    assert_eq!(processes.next_time(), Some(soon));
}
