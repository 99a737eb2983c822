//! Recognition of synthetic speech: a bidirectional LSTM that is trained by connectionist temporal
//! classification (Graves, Fernández, Gomez and Schmidhuber, *Connectionist temporal
//! classification*, 2006).
//!
//! An utterance is a sequence of vowels, and is heard as the energy of frequency bands in each
//! frame. A vowel is known by its *formants*, the frequencies at which the vocal tract resonates.
//! Vowels differ in length, speakers in pitch, and there may be a pause between vowels. The labels
//! are the vowels without their times. The loss, [`Ctc`], sums over all alignments of frames to
//! labels, so the data need no marks of where a vowel begins.

use wengert::nn::loss::Ctc;
use wengert::optim::clip_by_global_norm;
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// Vowels with their first two formants in Hz, averages of men (Peterson and Barney 1952).
pub const VOWELS: [(&str, f64, f64); 6] = [
    ("i", 270.0, 2290.0),
    ("ɛ", 530.0, 1840.0),
    ("æ", 660.0, 1720.0),
    ("ɑ", 730.0, 1090.0),
    ("ɔ", 570.0, 840.0),
    ("u", 300.0, 870.0),
];

/// Frequency bands of a frame.
pub const BANDS: usize = 16;

/// Frames of the longest utterance.
pub const FRAMES: usize = 40;

/// Vowels of the longest utterance.
pub const LABELS: usize = 5;

/// Classes: the blank, which is 0, and the vowels from 1 on.
pub const CLASSES: usize = VOWELS.len() + 1;

/// Two LSTMs, one from the beginning and one from the end, and a layer of classes.
#[derive(Differentiable, Clone)]
pub struct Recognizer {
    forward: Lstm,
    backward: Lstm,
    output: Linear,
}

impl Recognizer {
    /// With LSTMs of `width` cells.
    pub fn new(bands: usize, width: usize, classes: usize) -> Self {
        Recognizer {
            forward: Lstm::new(bands, width),
            backward: Lstm::new(bands, width),
            output: Linear::new(2 * width, classes),
        }
    }

    /// Logarithms of the probabilities of the classes, `[T, B, classes]`, for frames
    /// `[T, B, bands]`.
    pub fn call(&self, frames: &Tensor) -> Tensor {
        let begin = self.forward.zero_state(frames.dim(1));
        let (forward, _) = self.forward.call(frames, &begin);
        let (backward, _) = self.backward.call(&frames.flip(0), &begin);
        let both = Tensor::concatenate(&[forward, backward.flip(0)], -1);
        self.output.call(&both).log_softmax(-1)
    }

    /// The loss of utterances `[T, B, bands]` of `frame_counts` frames each, whose labels `[B, S]`
    /// are `label_counts` vowels each.
    pub fn loss(
        &self,
        frames: &Tensor,
        frame_counts: &Tensor,
        labels: &Tensor,
        label_counts: &Tensor,
    ) -> Tensor {
        Ctc::default().call(&self.call(frames), labels, frame_counts, label_counts)
    }
}

/// `train_step` learns from a batch of utterances. `recognize` gives the most probable class of
/// each frame, `[T, B]`.
pub fn program(width: usize) -> Result<Program> {
    let model = || Recognizer::new(BANDS, width, CLASSES);
    let frames = [FRAMES.into(), Dim::variable("B"), BANDS.into()];
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = f.input("frames", f32(frames.clone()));
        let frame_counts = f.input("frame_counts", i32("B"));
        let labels = f.input("labels", i32(["B".into(), Dim::from(LABELS)]));
        let label_counts = f.input("label_counts", i32("B"));
        let model = f.state("model", model());
        let (loss, gradient) =
            value_and_grad(&model, |model| model.loss(&x, &frame_counts, &labels, &label_counts));
        let (gradient, _) = clip_by_global_norm(&gradient, 1.0);
        Adam::new(1e-2).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("recognize", |f| {
        let x = f.input("frames", f32(frames.clone()));
        let model = f.param("model", model());
        f.output("classes", model.call(&x).argmax(-1));
    })?;
    Ok(program)
}

/// A speaker's utterance.
#[derive(Clone, PartialEq, Debug)]
pub struct Utterance {
    /// Energies of the bands, frame after frame.
    pub frames: Vec<[f32; BANDS]>,
    /// Classes of the vowels.
    pub labels: Vec<i32>,
}

/// An utterance of 2 to 5 vowels, each of 3 to 6 frames, some with pauses of 1 or 2 frames after
/// them. The energy around each formant is a bell of 150 Hz, and there is noise everywhere.
pub fn utterance(random: &mut SplitMix64) -> Utterance {
    let pitch = 0.9 + 0.3 * random.unit_f64();
    let mut frames = Vec::new();
    let mut labels = Vec::new();
    for _ in 0..2 + random.below(LABELS as u64 - 1) {
        let vowel = random.below(VOWELS.len() as u64) as usize;
        labels.push(vowel as i32 + 1);
        let (_, first, second) = VOWELS[vowel];
        for _ in 0..3 + random.below(4) {
            frames.push(frame(&[first * pitch, second * pitch], random));
        }
        if random.below(2) == 0 {
            for _ in 0..1 + random.below(2) {
                frames.push(frame(&[], random));
            }
        }
    }
    Utterance { frames, labels }
}

/// Energies around these frequencies, and noise. Bands are centred at 200, 375, … Hz.
fn frame(formants: &[f64], random: &mut SplitMix64) -> [f32; BANDS] {
    std::array::from_fn(|band| {
        let centre = 200.0 + 175.0 * band as f64;
        let bell = |formant: &f64| (-0.5 * ((formant - centre) / 150.0).powi(2)).exp();
        let energy: f64 = formants.iter().map(bell).sum();
        (energy + 0.2 * random.unit_f64()) as f32
    })
}

/// The inputs of `train_step`, of which `recognize` takes the first.
pub fn batch(utterances: &[Utterance]) -> Result<[(&'static str, Literal); 4]> {
    let count = utterances.len();
    let mut frames = vec![0.0; FRAMES * count * BANDS];
    let mut labels = vec![0; count * LABELS];
    for (n, utterance) in utterances.iter().enumerate() {
        for (t, energies) in utterance.frames.iter().enumerate() {
            let start = (t * count + n) * BANDS;
            frames[start..start + BANDS].copy_from_slice(energies);
        }
        let start = n * LABELS;
        labels[start..start + utterance.labels.len()].copy_from_slice(&utterance.labels);
    }
    let counts = |of: fn(&Utterance) -> usize| {
        Literal::from_vec(&[count], utterances.iter().map(|u| of(u) as i32).collect())
    };
    Ok([
        ("frames", Literal::from_vec(&[FRAMES, count, BANDS], frames)?),
        ("frame_counts", counts(|u| u.frames.len())?),
        ("labels", Literal::from_vec(&[count, LABELS], labels)?),
        ("label_counts", counts(|u| u.labels.len())?),
    ])
}

/// The labels that each utterance's best path spells: equal neighbours merged, blanks dropped.
/// `classes` is the result of `recognize`.
pub fn spelled(classes: &Literal, utterances: &[Utterance]) -> Vec<Vec<i32>> {
    let class = |t: usize, n: usize| classes.get(t * utterances.len() + n).to_f64() as i32;
    let labels = |(n, utterance): (usize, &Utterance)| {
        let mut path: Vec<i32> = (0..utterance.frames.len()).map(|t| class(t, n)).collect();
        path.dedup();
        path.retain(|class| *class != 0);
        path
    };
    utterances.iter().enumerate().map(labels).collect()
}

/// Insertions, deletions and substitutions that turn `found` into `expected`, at the least
/// (Levenshtein 1966).
pub fn edits(found: &[i32], expected: &[i32]) -> usize {
    let mut row: Vec<usize> = (0..=expected.len()).collect();
    for (i, a) in found.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in expected.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[expected.len()]
}

/// The label error rate: edits of all utterances, divided by their number of labels.
pub fn error_rate(classes: &Literal, utterances: &[Utterance]) -> f64 {
    let spelled = spelled(classes, utterances);
    let edits: usize = spelled.iter().zip(utterances).map(|(s, u)| edits(s, &u.labels)).sum();
    edits as f64 / utterances.iter().map(|u| u.labels.len()).sum::<usize>() as f64
}
