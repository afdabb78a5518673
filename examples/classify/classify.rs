//! Names what a picture shows: a compiled model called from Rust.    classify PICTURE.rgb    (224 x 224 pixels, three bytes each)

use std::ffi::c_void;
use std::process::ExitCode;

const PIXEL_BYTES: usize = 224 * 224 * 3;
const CLASSES: usize = 1001;
const SHOWN: usize = 3;

extern "C" {
    fn mobilenet_run(inputs: *const *const c_void, outputs: *const *mut c_void) -> i32;
    fn mobilenet_close();
}

/// Bytes that begin where a model expects tensors to begin.
#[repr(align(16))]
struct Tensor<const N: usize>([u8; N]);

/// The scores of all classes; the status of the model where it could not run.
fn classify(pixels: &Tensor<PIXEL_BYTES>) -> Result<Tensor<CLASSES>, i32> {
    let mut scores = Tensor([0; CLASSES]);
    let inputs = [pixels.0.as_ptr().cast::<c_void>()];
    let outputs = [scores.0.as_mut_ptr().cast::<c_void>()];
    // SAFETY: one input and one output of the sizes that mobilenet.h names, neither of which is the other.
    let status = unsafe { mobilenet_run(inputs.as_ptr(), outputs.as_ptr()) };
    unsafe { mobilenet_close() };
    if status == 0 { Ok(scores) } else { Err(status) }
}

fn main() -> ExitCode {
    let file = std::env::args().nth(1).and_then(|path| std::fs::read(path).ok());
    let pixels = match file.and_then(|bytes| bytes.try_into().ok()) {
        Some(pixels) => Tensor(pixels),
        None => {
            eprintln!("usage: classify PICTURE.rgb, a file of {PIXEL_BYTES} bytes");
            return ExitCode::from(2);
        }
    };
    let scores = match classify(&pixels) {
        Ok(Tensor(scores)) => scores,
        Err(status) => {
            eprintln!("the model could not run: status {status}");
            return ExitCode::from(1);
        }
    };
    let mut classes: Vec<usize> = (0..CLASSES).collect();
    classes.sort_by_key(|&k| std::cmp::Reverse(scores[k]));
    for &k in &classes[..SHOWN] {
        println!("{k} {}", scores[k]);
    }
    ExitCode::SUCCESS
}
