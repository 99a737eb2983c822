//! The view of training on a terminal: a pseudo-terminal runs the command, and a terminal emulator
//! holds what a user would see.

use crate::place::{MODEL, Place, Ran, wait_until};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use wengert::core::graph::parse_program;
use wengert::{GraphFile, Literal};

/// A command on a terminal.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    writer: Box<dyn Write + Send>,
    seen: Arc<Mutex<Seen>>,
    reader: JoinHandle<()>,
}

/// What the command has written, and the screen after it.
struct Seen {
    bytes: Vec<u8>,
    screen: vt100::Parser,
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn extent(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

impl Terminal {
    fn run(place: &Place, cols: u16, arguments: &[&str], environment: &[(&str, &str)]) -> Terminal {
        let pair = native_pty_system().openpty(size(24, cols)).unwrap();
        let mut command = CommandBuilder::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_graphrun")]);
        command.args(arguments);
        command.cwd(place.path(""));
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color");
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let child = pair.slave.spawn_command(command).unwrap();
        let seen =
            Seen { bytes: vec![], screen: vt100::Parser::new(extent(24), extent(cols), 1000) };
        let seen = Arc::new(Mutex::new(seen));
        let mut source = pair.master.try_clone_reader().unwrap();
        let writer = pair.master.take_writer().unwrap();
        let shared = seen.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // At the end of the process, Linux reports an error.
            while let Ok(count) = source.read(&mut buffer)
                && count > 0
            {
                let mut seen = shared.lock().unwrap();
                seen.bytes.extend(&buffer[..count]);
                seen.screen.process(&buffer[..count]);
            }
        });
        Terminal { master: pair.master, child, writer, seen, reader }
    }

    fn screen(&self) -> String {
        rows_of(self.seen.lock().unwrap().screen.screen())
    }

    fn bytes(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap().bytes).into_owned()
    }

    /// Waits until the screen has all of these texts.
    fn shows(&self, texts: &[&str]) -> String {
        let mut screen = String::new();
        wait_until(&format!("{texts:?}"), || {
            screen = self.screen();
            texts.iter().all(|text| screen.contains(text))
        });
        screen
    }

    fn resize(&self, cols: u16) {
        self.seen.lock().unwrap().screen.screen_mut().set_size(extent(24), extent(cols));
        self.master.resize(size(24, cols)).unwrap();
    }

    /// Waits for the end of the process. Returns its status, everything it wrote, and the screen.
    fn end(mut self) -> (u32, String, vt100::Parser) {
        let status = self.child.wait().unwrap().exit_code();
        drop(self.writer);
        drop(self.master);
        self.reader.join().unwrap();
        let Seen { bytes, screen } = Arc::into_inner(self.seen).unwrap().into_inner().unwrap();
        (status, String::from_utf8(bytes).unwrap(), screen)
    }

    /// Presses Ctrl-C, and waits for the end of the process.
    fn interrupt(mut self) -> (u32, String, vt100::Parser) {
        self.writer.write_all(b"\x03").unwrap();
        self.end()
    }
}

/// The rows of a screen. Progress fills rows with spaces, so `contents` takes them for one line.
fn rows_of(screen: &vt100::Screen) -> String {
    let rows: Vec<String> = screen.rows(0, screen.size().1.get()).collect();
    rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n")
}

/// A place with more examples, so that there are few lines for epochs.
fn place() -> Place {
    let place = Place::new();
    let x: Vec<f32> = (0..36_000).map(|i| ((i * 37 % 31) as f32) / 31.0 - 0.5).collect();
    let y: Vec<f32> = x.chunks(3).map(|r| r[0] - 2.0 * r[1] + 0.5 * r[2]).collect();
    place.write_arrays(
        "long.npz",
        [
            ("x", Literal::from_vec(&[12_000, 3], x).unwrap()),
            ("y", Literal::from_vec(&[12_000], y).unwrap()),
        ],
    );
    place
}

const TRAIN: [&str; 8] =
    ["train", "model.graph", "--data", "long.npz", "--out", "run", "--epochs", "5000"];

/// What the view has.
const PARTS: [&str; 5] = ["/5000 ", " left", "examples/s", "resident", "time by kernel:"];

/// Codes of colours and styles.
fn has_styles(bytes: &str) -> bool {
    bytes.split('\u{1b}').skip(1).any(|code| {
        let end =
            code.trim_start_matches('[').trim_start_matches(|c: char| "0123456789;".contains(c));
        end.starts_with('m')
    })
}

#[test]
fn the_view_fits_the_terminal_and_ctrl_c_leaves_it_clean() {
    for cols in [40, 120] {
        let place = place();
        let terminal = Terminal::run(&place, cols, &TRAIN, &[]);
        let screen = terminal.shows(&PARTS);
        let (status, bytes, parser) = terminal.interrupt();
        assert_eq!(status, 130, "{bytes}");
        // The lines of the curve, with the scale of the loss beside them.
        let rows = screen.lines().filter(|line| line.contains(['▁', '█', '▄'])).count();
        assert!(rows >= 1, "{screen}");
        assert_eq!(screen.contains("───"), cols == 120, "the bar: {screen}");
        assert!(has_styles(&bytes), "{bytes:?}");
        let screen = parser.screen();
        let last = rows_of(screen);
        for part in ["───", " left", "resident", "time by kernel"] {
            assert!(!last.contains(part), "{part} is left: {last}");
        }
        // A narrow terminal breaks the line.
        let joined: String = last.lines().collect();
        assert!(joined.contains("SIGINT: stopped after step"), "{last}");
        assert!(!screen.hide_cursor() && !screen.alternate_screen(), "{bytes:?}");
        assert_eq!(screen.cursor_position().1, 0, "{last}");
        assert!(!bytes.contains("\u{1b}[?1049h"), "{bytes:?}");
    }
}

#[test]
fn the_view_follows_the_size_of_the_terminal() {
    let place = place();
    let terminal = Terminal::run(&place, 120, &TRAIN, &[]);
    terminal.shows(&PARTS);
    for cols in [40, 100, 20] {
        terminal.resize(cols);
        let drawn = terminal.bytes().len();
        // The next pictures are for the new width.
        wait_until("pictures", || terminal.bytes()[drawn..].matches("time by kernel").count() > 3);
        let screen = terminal.shows(&[" left", "resident", "time by kernel:"]);
        // What was drawn for the old width may stay above.
        let view = &screen[screen.rfind(" left").unwrap()..];
        let widest = view.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= usize::from(cols), "{screen}");
        for part in ["examples/s", "ms/step", "resident", "time by kernel:"] {
            assert_eq!(view.matches(part).count(), 1, "{cols}: {screen}");
        }
    }
    assert_eq!(terminal.interrupt().0, 130);
}

#[test]
fn colours_are_off_with_no_color() {
    let place = place();
    let terminal = Terminal::run(&place, 100, &TRAIN, &[("NO_COLOR", "1")]);
    terminal.shows(&PARTS);
    let (status, bytes, _) = terminal.interrupt();
    assert_eq!(status, 130);
    assert!(!has_styles(&bytes), "{bytes:?}");
    assert!(
        has_styles("a\u{1b}[36mb") && has_styles("\u{1b}[0m") && !has_styles("\u{1b}[2K\u{1b}[3A")
    );
}

/// Without a view the lines are those of a pipe.
#[test]
fn a_plain_terminal_gets_plain_lines() {
    let timeless = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" examples/s").next().unwrap().to_owned()).collect()
    };
    let without_rate = |line: &String| line.rsplit_once(", ").map_or(line.clone(), |l| l.0.into());
    let short = &TRAIN[..6];
    let place = place();
    let piped = Ran::of(place.command(&[short, &["--steps", "4000"]].concat()).output().unwrap());
    piped.good();
    let wanted: Vec<String> = timeless(&piped.out).iter().map(without_rate).collect();
    assert!(wanted.len() >= 4, "{wanted:?}");
    for (arguments, environment) in [(&["--plain"][..], &[][..]), (&[], &[("TERM", "dumb")])] {
        std::fs::remove_dir_all(place.path("run")).unwrap();
        let all = [short, &["--steps", "4000"], arguments].concat();
        let (status, bytes, _) = Terminal::run(&place, 80, &all, environment).end();
        assert_eq!(status, 0, "{bytes}");
        assert!(!bytes.contains('\u{1b}'), "{bytes:?}");
        let found: Vec<String> = timeless(&bytes).iter().map(without_rate).collect();
        assert_eq!(found, wanted);
    }
    // The scrollback of a terminal with a view has the same lines.
    std::fs::remove_dir_all(place.path("run")).unwrap();
    let all = [short, &["--steps", "4000"]].concat();
    let (status, _, mut parser) = Terminal::run(&place, 200, &all, &[]).end();
    assert_eq!(status, 0);
    parser.screen_mut().set_scrollback(1000);
    let found: Vec<String> =
        timeless(parser.screen().contents().trim_end()).iter().map(without_rate).collect();
    assert_eq!(found, wanted);
}

/// A function that takes minutes.
const WAIT: &str = "
func @wait(%x: f32[B,3], %y: f32[B], param %w: f32[3]) -> (loss: f32[]) {
  %a: i32[] = constant {value=i32[] 0}
  %b: i32[] = constant {value=i32[] 2147483647}
  %c: i32[] = while %a, %b {captures=1} region (%c: i32[], %b: i32[]) {
    %0: bool[] = lt %c, %b
    return %0
  } region (%c: i32[], %b: i32[]) {
    %1: i32[] = constant {value=i32[] 1}
    %2: i32[] = add %c, %1
    return %2
  }
  %l: f32[] = convert_element_type %c {dtype=f32}
  return %l
}
";

/// A phase that takes over a second is shown; a command without one draws nothing.
#[test]
fn long_phases_are_shown_on_a_terminal() {
    let place = place();
    let mut file = GraphFile::read(place.path("model.graph")).unwrap();
    file.program = parse_program(&format!("{MODEL}{WAIT}"), "wait").unwrap();
    if let Some(evaluate) = file.recipe.as_mut().and_then(|recipe| recipe.evaluate.as_mut()) {
        evaluate.function = "wait".into();
    }
    file.write(place.path("wait.graph")).unwrap();
    place.train("model.graph", "w", &["--steps", "1"]).good();
    let evaluate = ["evaluate", "wait.graph", "--data", "data.npz", "--params"];
    let evaluate = [&evaluate[..], &["w/weights.safetensors"]].concat();
    let terminal = Terminal::run(&place, 60, &evaluate, &[]);
    terminal.shows(&["evaluating wait, "]);
    let (_, bytes, _) = terminal.interrupt();
    assert!(!has_styles(&bytes), "{bytes:?}");
    let (status, bytes, _) = Terminal::run(&place, 60, &["inspect", "model.graph"], &[]).end();
    assert!(status == 0 && !bytes.contains('\u{1b}'), "{bytes:?}");
}
