use super::*;

const LIMIT: Bytes = Bytes(100);

/// A state with a grant of each of these sizes, by the threads 1, 2 and so on.
fn granted(sizes: &[u64]) -> State {
    let mut state = State::default();
    for (thread, size) in (1..).map(Pid::from_raw).zip(sizes) {
        assert!(state.take(Made::Mapped(*size), thread, LIMIT), "{size}");
    }
    state
}

fn survey(past: impl IntoIterator<Item = u64>, objects: usize) -> Survey {
    Survey {
        asked: Instant::now(),
        past: past.into_iter().collect(),
        objects,
    }
}

#[test]
fn all_of_it_counts_beside_what_is_in_use() {
    let mut state = granted(&[30, 20]);
    let thread = Pid::from_raw(9);
    state.beside = 40;
    assert!(!state.take(Made::Mapped(11), thread, LIMIT));
    assert!(!state.take(Made::Huge, thread, LIMIT));
    assert!(!state.take(Made::Lasting(u64::MAX), thread, LIMIT));
    assert!(state.take(Made::Lasting(10), thread, LIMIT));
    assert!(!state.take(Made::Mapped(1), thread, LIMIT));
    assert!(state.take(Made::Nothing, thread, LIMIT));
    assert_eq!((state.sum(), state.lasting), (60, 10));
}

#[test]
fn as_many_of_the_largest_are_left_as_there_are_objects() {
    let sum = |sizes: &[u64], past: &[u64], objects| {
        let mut state = granted(sizes);
        state.lasting = 1;
        state.forget(&survey(past.iter().copied(), objects));
        state.sum()
    };
    assert_eq!(sum(&[5, 30, 20], &[1, 2, 3], 0), 1);
    assert_eq!(sum(&[5, 30, 20], &[1, 2, 3], 2), 51);
    assert_eq!(sum(&[5, 30, 20], &[1, 2, 3], 9), 56);
    // The object of a thread that is not past its call may be among those that were found, or may
    // come later.
    assert_eq!(sum(&[5, 30, 20], &[1, 2], 0), 21);
    assert_eq!(sum(&[5, 30, 20], &[1, 2], 1), 51);
    assert_eq!(sum(&[5, 30, 20], &[], 0), 56);
}

#[test]
fn what_was_granted_after_the_question_stays() {
    let mut state = granted(&[5, 30]);
    let of_before = survey([1, 2], 0);
    assert!(state.take(Made::Mapped(7), Pid::from_raw(1), LIMIT));
    state.forget(&of_before);
    assert_eq!(state.sum(), 7);
}

#[test]
fn a_thread_that_calls_again_is_past_its_calls_before() {
    let shared = SharedMemory::within(LIMIT, Some(1));
    *shared.state() = granted(&[5, 30]);
    shared.state().has_passed(Pid::from_raw(2));
    let question = shared.question(Pid::this()).unwrap();
    let thread = Pid::from_raw(1);
    assert_eq!(question.grants, [(1, Some(thread)), (2, None)]);
}

#[test]
fn grants_are_bounded_in_number() {
    let mut state = State::default();
    let mut take = || state.take(Made::Mapped(0), Pid::this(), LIMIT);
    let taken = (0..2 * MOST_GRANTS).filter(|_| take()).count();
    assert_eq!(taken, MOST_GRANTS);
}

#[test]
fn a_call_makes_what_its_registers_say() {
    let upper = 0xffff_ffff_0000_0000;
    let made = |number, args: [u64; 4]| Made::by(number, |index| args[index], 10);
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let page = |length| Made::Mapped(object(length));
    assert_eq!(made(libc::SYS_mmap, [0, 1, 3, shared]), page(1));
    assert_eq!(
        made(libc::SYS_mmap, [0, 1 << 32, 3, upper | shared]),
        page(1 << 32)
    );
    assert_eq!(
        made(libc::SYS_mmap, [0, u64::MAX, 3, shared]),
        page(u64::MAX)
    );
    let huge = shared | libc::MAP_HUGETLB as u64;
    assert_eq!(made(libc::SYS_mmap, [0, 1, 3, huge]), Made::Huge);

    let creates = libc::IPC_CREAT as u64 | 0o600;
    let segment = Made::Lasting(object(4097));
    let shmget = |key, flags| made(libc::SYS_shmget, [key, 4097, flags, 0]);
    assert_eq!(shmget(7, 0o600), Made::Nothing);
    // The kernel reads the lower half.
    for (key, flags) in [(7, creates), (0, 0), (upper, 0), (7, upper | creates)] {
        assert_eq!(shmget(key, flags), segment, "{key:#x} {flags:#o}");
    }
    assert_eq!(shmget(7, creates | libc::SHM_HUGETLB as u64), Made::Huge);
    let semget = |count, flags| made(libc::SYS_semget, [7, count, flags, 0]);
    let set = Made::Lasting(PAGE + 250 * SEMAPHORE + 10 * (UNDO + 500));
    assert_eq!(semget(250, creates), set);
    assert_eq!(semget(upper | 250, creates), set);
    assert_eq!(semget(250, 0), Made::Nothing);
    assert_eq!(
        made(libc::SYS_msgget, [7, creates, 0, 0]),
        Made::Lasting(QUEUE)
    );
    assert_eq!(made(libc::SYS_msgget, [7, 0, creates, 0]), Made::Nothing);
    assert_eq!(made(libc::SYS_read, [0; 4]), Made::Huge);
}

#[test]
fn an_object_takes_whole_pages_and_one_for_itself() {
    assert_eq!(object(0), PAGE);
    assert_eq!(object(1), unit() + PAGE);
    assert_eq!(object(2 << 20), (2 << 20) + PAGE);
    assert_eq!(object(u64::MAX), u64::MAX);
}
