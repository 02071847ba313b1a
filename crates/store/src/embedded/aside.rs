//! Who writes tables steps aside for threads whom somebody waits for.
//!
//! fjall's worker and our settler write and merge tables for a long time on end, and on a machine with few cores whoever wakes beside them
//! waits for the rest of their turn: some milliseconds, where a commit takes a fraction of one. With a lower priority they still
//! get what others leave, and a share when they leave nothing; with a much lower one they would fall behind, and then
//! everybody waits for them.

/// As `nice -n 5` would have it.
const NICE: i32 = 5;
/// What the threads are called, by fjall and by us.
const WORKERS: [&str; 2] = ["fjall:worker", "store-settler"];

/// To be called once they have been started. Nothing comes of a failure but what was there before.
#[cfg(target_os = "linux")]
pub fn step_aside() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.flatten() {
        let is_worker =
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| WORKERS.contains(&name.trim()));
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(rustix::process::Pid::from_raw);
        if is_worker && id.is_some() {
            // A thread's number stands for that thread alone.
            let _ = rustix::process::setpriority_process(id, NICE);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub fn step_aside() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_worker_steps_aside() {
        let nice = |thread: &std::path::Path| {
            let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
            // After the name in brackets, the state is the first field and niceness the seventeenth.
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse::<i32>().unwrap()
        };
        let me = std::fs::canonicalize("/proc/thread-self").unwrap();
        let mine = nice(&me);
        let (started, ready) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name(WORKERS[0].to_owned()).spawn(move || {
            started.send(std::fs::canonicalize("/proc/thread-self").unwrap()).unwrap();
            let _ = ended.recv();
        });
        let its = ready.recv().unwrap();
        step_aside();
        assert_eq!((nice(&its), nice(&me)), (NICE, mine));
        drop(end);
        worker.unwrap().join().unwrap();
    }
}
