// SPDX-License-Identifier: GPL-2.0-only
//! Answers scrapers over HTTP: one request each, so many clients at a time, and none for long.
//!
//! What libraries have for this takes a thread for every client that cares to connect; here the threads are counted.

use anyhow::{Context, Result, bail};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the longest request.
const LONGEST: usize = 8192;
/// Of headers in it.
const HEADERS: usize = 64;

/// What clients may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// At a time; others wait in the kernel's queue, which is bounded too.
    pub clients: usize,
    /// To say what they want; to take the answer.
    pub patience: Duration,
}

/// Those of a scheduler's metrics.
pub const LIMITS: Limits = Limits { clients: 4, patience: Duration::from_secs(2) };

/// What is answered.
pub struct Answer {
    /// 200, or another of `reason`'s.
    pub status: u16,
    /// Its Content-Type.
    pub kind: &'static str,
    /// The body.
    pub text: String,
}

impl Answer {
    /// Words for people.
    pub fn plain(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", text: text.into() }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    }
}

/// Answers at `address`, which it returns with its port, for as long as the program runs; `answer` is given the path.
///
/// # Errors
/// The address cannot be listened at, or no thread can be started.
pub fn serve(
    address: SocketAddr,
    limits: Limits,
    answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> Result<SocketAddr> {
    let refused = || format!("cannot serve metrics at {address}: choose another address");
    let listener = TcpListener::bind(address).with_context(refused)?;
    let own = listener.local_addr().with_context(refused)?;
    let answer = Arc::new(answer);
    for _ in 0..limits.clients {
        let (listener, answer) = (listener.try_clone().with_context(refused)?, answer.clone());
        thread::Builder::new().name("metrics".into()).spawn(move || {
            loop {
                match listener.accept() {
                    // A scraper that has gone, or asks for nonsense, is none of our business.
                    Ok((stream, _)) => drop(talk(stream, limits.patience, &*answer)),
                    // Out of files, perhaps: no reason to spin.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
    }
    Ok(own)
}

fn talk(stream: TcpStream, patience: Duration, answer: &impl Fn(&str) -> Answer) -> Result<()> {
    let mut client = Timed { stream, until: Instant::now() + patience };
    let answer = match path(&mut client) {
        Ok(path) => answer(&path),
        Err(why) => why,
    };
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        reason(answer.status),
        answer.kind,
        answer.text.len()
    );
    client.until = Instant::now() + patience;
    client.write_all(head.as_bytes())?;
    client.write_all(answer.text.as_bytes())?;
    Ok(())
}

/// A client that is waited for until an instant, whatever it sends or takes meanwhile: by a few bytes now and then it would
/// keep a thread for hours.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self, late: &'static str) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::new(ErrorKind::TimedOut, late)) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left("the request took too long")?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left("the answer was taken too slowly")?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The path that a client asks for, or what to answer instead.
fn path(client: &mut Timed) -> Result<String, Answer> {
    let request = head(client).map_err(|why| Answer::plain(400, format!("{why:#}\n")))?;
    match request {
        (method, path) if method == "GET" => Ok(path),
        _ => Err(Answer::plain(405, "only GET is answered\n")),
    }
}

/// Method and path of a request whose head has arrived in time.
fn head(client: &mut Timed) -> Result<(String, String)> {
    let mut bytes = Vec::new();
    while bytes.len() < LONGEST {
        let mut more = [0; 1024];
        let read = client.read(&mut more)?;
        if read == 0 {
            bail!("the request is not whole");
        }
        bytes.extend(&more[..read]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if request.parse(&bytes)?.is_complete() {
            let word = |word: Option<&str>| word.unwrap_or_default().to_string();
            return Ok((word(request.method), word(request.path)));
        }
    }
    bail!("the request is too long")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};

    const LOOPBACK: &str = "127.0.0.1:0";

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let limits = Limits { clients: 1, patience: Duration::from_secs(60) };
        let address =
            serve(LOOPBACK.parse().unwrap(), limits, |path| Answer::plain(200, format!("of {path}")))
                .unwrap();
        let text = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nof /metrics"), "{text}");
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n".to_string(), "405"),
            ("nonsense\r\n\r\n".into(), "400"),
            // Not a byte more: what nobody reads resets the connection.
            (format!("GET /{}", "x".repeat(LONGEST - 5)), "400"),
        ] {
            let text = ask(address, &request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        assert!(serve(address, limits, |_| Answer::plain(200, "")).is_err(), "two at one address");
    }

    /// Three times as many clients as are answered at once: the others wait, and nobody is forgotten.
    #[test]
    fn so_many_clients_at_a_time_and_no_more() {
        let limits = Limits { clients: 3, patience: Duration::from_secs(60) };
        let gate = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let most = Arc::new(AtomicUsize::new(0));
        let (door, seen) = (gate.clone(), most.clone());
        let answer = move |_: &str| {
            let (state, changed) = &*door;
            let mut inside = state.lock().unwrap();
            inside.0 += 1;
            seen.fetch_max(inside.0, Ordering::Relaxed);
            changed.notify_all();
            let mut inside = changed.wait_while(inside, |(_, open)| !*open).unwrap();
            inside.0 -= 1;
            Answer::plain(200, "done")
        };
        let address = serve(LOOPBACK.parse().unwrap(), limits, answer).unwrap();
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..9).map(|_| scope.spawn(|| ask(address, "GET / HTTP/1.1\r\n\r\n"))).collect();
            let (state, changed) = &*gate;
            let mut inside = changed.wait_while(state.lock().unwrap(), |(n, _)| *n < limits.clients).unwrap();
            inside.1 = true;
            drop(inside);
            changed.notify_all();
            assert!(clients.into_iter().all(|client| client.join().unwrap().ends_with("done")));
        });
        assert_eq!(most.load(Ordering::Relaxed), limits.clients);
    }

    /// More than the kernel's buffers hold, to a client that takes a little at a time and never stops.
    #[test]
    fn who_takes_the_answer_too_slowly_does_not_get_all() {
        const ALL: usize = 64 << 20;
        let limits = Limits { clients: 1, patience: Duration::from_millis(100) };
        let address =
            serve(LOOPBACK.parse().unwrap(), limits, |_| Answer::plain(200, "x".repeat(ALL))).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let (mut got, mut some) = (0, vec![0; 64 << 10]);
        while let Ok(read @ 1..) = slow.read(&mut some) {
            got += read;
            thread::sleep(Duration::from_millis(5));
        }
        assert!(got < ALL, "{got}");
    }

    #[test]
    fn who_says_nothing_is_sent_away() {
        let limits = Limits { clients: 1, patience: Duration::from_millis(50) };
        let address = serve(LOOPBACK.parse().unwrap(), limits, |_| Answer::plain(200, "done")).unwrap();
        let mut silent = TcpStream::connect(address).unwrap();
        silent.write_all(b"GET /met").unwrap();
        // The only one who answers is busy with that until its patience ends.
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").ends_with("done"));
        let mut text = String::new();
        silent.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    }
}
