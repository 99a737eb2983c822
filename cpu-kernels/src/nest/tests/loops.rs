//! Loops over rows and inner axes.

use super::*;

/// Loops that only run native code step their pointers: within a phase, and from row to row;
/// backwards, over several axes, with no iterations, and under conditions that hold in some of
/// them. Elements that are gathered in an order of the lanes are those of the order.
#[test]
fn loops_that_only_run_native_code() {
    let texts = [
        "nest @sums(in %x: f32[3,40,16], out %y: f32[3,16]) {
          parallel i: 3, k: 16
          phase j: 40 {
            %0: f32 = load %x[i, j, k]
            %1: f32 = reduce(%0) sum tree(1)
          }
          phase {
            store %y[i, k], %1
          }
        }",
        "nest @rows(in %x: f64[7,5,24], in %b: f64[24], in %s: f64[7], out %y: f64[7,5,24]) {
          parallel i: 7, j: 5, k: 24
          phase {
            %0: f64 = load %x[i, j, k]
            %1: f64 = load %b[k]
            %2: f64 = load %s[i]
            %3: f64 = mul %0, %1
            %4: f64 = add %3, %2
            store %y[i, j, k], %4
          }
        }",
        "nest @crossed(in %x: f32[9,6,32], out %y: f32[6,9,32]) {
          parallel i: 6, j: 9, k: 32
          phase {
            %0: f32 = load %x[-j+8, i, k]
            %1: f32 = neg %0
            store %y[i, j, k], %1
          }
        }",
        "nest @window(in %x: f32[9,11,64], out %y: f32[9,11,64]) {
          parallel i: 9, j: 11, k: 64
          phase {
            %0: f32 = const 0.5
            %1: f32 = const -2.0
            %2: f32 = load %x[i-1, j-1, k] {i-1 in 0..9, j-1 in 0..11} else %0
            %3: f32 = load %x[i, 2*j-7, k] {2*j-7 in 0..11} else %1
            %4: f32 = load %x[i+1, -3*j+19, k] {i+1 in 0..9, -3*j+19 in 0..11} else %0
            %5: f32 = load %x[i, j+20, k] {j+20 in 0..11} else %1
            %7: f32 = sub %2, %3
            %8: f32 = mul %7, %4
            %9: f32 = add %8, %5
            store %y[i, j, k], %9
          }
        }",
        "nest @window_of_halves(in %x: f32[9,11,64], out %y: f32[9,11,64]) {
          parallel i: 9, j: 11, k: 64
          phase {
            %0: f32 = const 0.5
            %1: f32 = load %x[i, j, k]
            %2: f32 = load %x[i, floor_div(j, 2), k] {floor_div(j, 2) in 1..4} else %0
            %3: f32 = sub %1, %2
            store %y[i, j, k], %3
          }
        }",
        "nest @window_of_a_loop(in %x: f32[9,64], out %y: f32[9,64]) {
          parallel i: 9, k: 64
          phase j: 5 {
            %0: f32 = const 0.5
            %1: f32 = load %x[i+j-2, k] {i+j-2 in 0..9} else %0
            %2: f32 = const 2.0
            %3: f32 = load %x[-j+i+2, k] {-j+i+2 in 0..9} else %2
            %4: f32 = mul %1, %3
            %5: f32 = reduce(%4) sum tree(1)
          }
          phase {
            store %y[i, k], %5
          }
        }",
        "nest @other_fills(in %x: f32[9,64], in %f: f32[64], in %s: f32[], out %y: f32[9,64]) {
          parallel i: 9, k: 64
          phase {
            %0: f32 = load %f[k]
            %1: f32 = load %x[i-1, k] {i-1 in 0..9} else %0
            %2: f32 = load %s[]
            %3: f32 = load %x[i+1, k] {i+1 in 0..9} else %2
            %4: f32 = sub %1, %3
            store %y[i, k], %4
          }
        }",
        "nest @shuffled(in %x: f32[5,3,60], in %b: f32[60], in %s: f32[5], out %y: f32[5,3,60]) {
          parallel i: 5, j: 3, k: 60
          phase {
            %0: f32 = load %x[i, j, floor_div(k, 4)+15*mod(k, 4)]
            %1: f32 = load %b[floor_div(k, 4)+15*mod(k, 4)]
            %2: f32 = load %b[k]
            %3: f32 = mul %0, %1
            %4: f32 = add %3, %2
            %5: f32 = load %s[mod(2*i+j, 5)]
            %6: f32 = load %b[floor_div(k+3*i, 2)] {floor_div(k, 7)+i in 2..9} else %5
            %7: f32 = sub %4, %6
            store %y[i, j, k], %7
          }
        }",
        "nest @shuffled_blocks(in %x: f32[9000], in %b: f32[3], out %y: f32[3,9000]) {
          parallel i: 3, k: 9000
          phase {
            %0: f32 = load %x[floor_div(k, 4)+2250*mod(k, 4)]
            %1: f32 = load %b[i]
            %2: f32 = mul %0, %1
            store %y[i, k], %2
          }
        }",
        "nest @shuffled_lines(in %x: f32[12,6], in %b: f32[24], out %y: f32[7,12,6]) {
          parallel a: 7, i: 12, j: 6
          phase {
            %0: f32 = load %x[floor_div(i, 3)+4*mod(i, 3), j]
            %1: f32 = load %b[mod(5*i+j, 24)]
            %2: f32 = mul %0, %1
            store %y[a, i, j], %2
          }
        }",
        "nest @lanes_differ(in %x: f32[7,40], out %y: f32[7,40]) {
          parallel i: 7, k: 40
          phase {
            %0: f32 = const 0.0
            %1: f32 = load %x[i, k-2] {k-2 in 0..40} else %0
            %2: f32 = load %x[i-1, k] {i-1 in 0..7} else %1
            %3: f32 = sub %2, %1
            store %y[i, k], %3
          }
        }",
    ];
    let mut random = Random(4);
    for text in texts {
        let nest = one(text);
        let given = inputs(&nest, &mut random);
        assert!(check(&nest, &given, &mut Machines::new()), "{nest}");
    }
}
