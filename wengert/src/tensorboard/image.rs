//! Pixels as PNG.

use super::proto::Image;
use png::{BitDepth, ColorType, Encoder};
use wengert_core::{DType, Literal, Result, diagnostic};

/// The image of a u8 tensor of shape `[height, width]` or `[height, width, channels]`.
///
/// # Errors
/// The tensor has another dtype, shape or number of channels, or no pixels.
pub(super) fn of(pixels: &Literal) -> Result<Image> {
    let (height, width, channels) = match *pixels.shape() {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => (0, 0, 0),
    };
    let color = match channels {
        1 => Some(ColorType::Grayscale),
        3 => Some(ColorType::Rgb),
        4 => Some(ColorType::Rgba),
        _ => None,
    };
    // The format's extents are those of i32.
    let small = |extent: usize| (1..=i32::MAX as usize).contains(&extent);
    let Some(color) =
        color.filter(|_| pixels.dtype() == DType::U8 && small(height) && small(width))
    else {
        return Err(diagnostic!("{} is no image", pixels.ty())
            .help("give a u8 tensor [height, width] or [height, width, 1, 3 or 4 channels]"));
    };
    let mut encoded = vec![];
    let mut encoder = Encoder::new(&mut encoded, width as u32, height as u32);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&pixels.to_bytes()))
        .map_err(|error| diagnostic!("the image cannot be encoded: {error}"))?;
    Ok(Image { height: height as i32, width: width as i32, colorspace: channels as i32, encoded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_read_back() {
        for (shape, channels) in [(vec![2, 3], 1), (vec![2, 3, 1], 1), (vec![2, 1, 3], 3)] {
            let count: usize = shape.iter().product();
            let bytes: Vec<u8> = (0..count as u8).map(|n| 40 * n).collect();
            let image = of(&Literal::from_vec(&shape, bytes.clone()).unwrap()).unwrap();
            assert_eq!(image.colorspace, channels);
            let mut reader =
                png::Decoder::new(std::io::Cursor::new(image.encoded)).read_info().unwrap();
            let mut found = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut found).unwrap();
            assert_eq!(found, bytes);
        }
    }

    #[test]
    fn other_tensors_are_no_images() {
        let refused = |literal: Literal| of(&literal).unwrap_err().message;
        let found = refused(Literal::from_vec(&[2], vec![0u8; 2]).unwrap());
        assert!(found.contains("u8[2] is no image"), "{found}");
        refused(Literal::from_vec(&[1, 1, 2], vec![0u8; 2]).unwrap());
        refused(Literal::from_vec(&[0, 2], vec![0u8; 0]).unwrap());
        refused(Literal::from_vec(&[2, 1], vec![0f32; 2]).unwrap());
    }
}
