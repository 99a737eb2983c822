//! Section `recipe.data`: blocks of rows, and the transforms that section `recipe` cannot hold.

use super as v1;
use crate::format::container::damaged;
use crate::recipe::{Blocks, InputRecipe, Recipe, Transform};
use wengert_core::Result;

/// Whether section `recipe` holds the transforms of an input.
pub(super) fn is_plain(input: &InputRecipe) -> bool {
    let mut transforms = input.transforms.iter();
    transforms.all(|transform| {
        matches!(transform, Transform::Convert(_) | Transform::Scale(_) | Transform::Offset(_))
    })
}

/// The inputs of the step (0), of the evaluation (1), and of the further evaluation sets.
fn inputs(recipe: &Recipe) -> impl Iterator<Item = (u32, &InputRecipe)> {
    let step = recipe.step.inputs.iter().map(|input| (0, input));
    let evaluate = recipe.evaluate.iter().flat_map(|evaluate| &evaluate.inputs);
    let sets = (2..).zip(&recipe.monitoring.sets);
    let sets = sets.flat_map(|(n, set)| set.evaluate.inputs.iter().map(move |input| (n, input)));
    step.chain(evaluate.map(|input| (1, input))).chain(sets)
}

/// Converts the blocks and transforms of a recipe; `None` if section `recipe` has all of them.
pub fn to_record(recipe: &Recipe) -> Option<v1::Data> {
    let beyond = inputs(recipe).filter(|(_, input)| !is_plain(input));
    let transforms: Vec<v1::InputTransforms> = beyond
        .map(|(function, input)| v1::InputTransforms {
            function,
            input: input.input.clone(),
            transforms: input.transforms.iter().map(Transform::to_string).collect(),
        })
        .collect();
    let blocks = recipe.batches.blocks.map(|blocks| (blocks.rows, blocks.window));
    (blocks.is_some() || !transforms.is_empty()).then_some(v1::Data { blocks, transforms })
}

/// Adds the record to a recipe with its evaluation sets. The recipe must pass [`Recipe::verify`].
///
/// Errors: there is no such input, or it has transforms; a text is no transform.
pub fn add_record(record: v1::Data, recipe: &mut Recipe) -> Result<()> {
    recipe.batches.blocks = record.blocks.map(|(rows, window)| Blocks { rows, window });
    for v1::InputTransforms { function, input, transforms } in record.transforms {
        let inputs = match function {
            0 => Some(&mut recipe.step.inputs),
            1 => recipe.evaluate.as_mut().map(|evaluate| &mut evaluate.inputs),
            n => {
                let set = recipe.monitoring.sets.get_mut(n as usize - 2);
                set.map(|set| &mut set.evaluate.inputs)
            }
        };
        let mut inputs = inputs.into_iter().flatten();
        let found = inputs.find(|known| known.input == input && known.transforms.is_empty());
        let found =
            found.ok_or_else(|| damaged(format!("function {function} has no input `{input}`")))?;
        found.transforms =
            transforms.iter().map(|text| text.parse()).collect::<Result<Vec<Transform>>>()?;
    }
    recipe.verify()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec;
    use crate::format::v1::recipe::{from_record, tests::sample};
    use wengert_core::{DType, Scalar};

    fn round_trip(recipe: &Recipe) -> Recipe {
        let bytes = codec::encode("recipe", &v1::recipe::to_record(recipe)).unwrap();
        let mut read = from_record(codec::decode("recipe", &bytes).unwrap()).unwrap();
        if let Some(record) = to_record(recipe) {
            let bytes = codec::encode("recipe.data", &record).unwrap();
            add_record(codec::decode("recipe.data", &bytes).unwrap(), &mut read).unwrap();
        }
        read
    }

    #[test]
    fn blocks_and_transforms_return() {
        let plain = sample();
        assert_eq!(to_record(&plain), None);
        let mut recipe = plain.clone();
        recipe.batches.blocks = Some(Blocks { rows: 1024, window: 8 });
        assert_eq!(round_trip(&recipe), recipe);
        recipe.batches.blocks = None;
        recipe.step.inputs[0].transforms.push(Transform::Flip { axis: 1 });
        recipe.evaluate.as_mut().unwrap().inputs[0].transforms =
            vec![Transform::Convert(DType::F64), Transform::Mixup(Scalar::of(0.2f64))];
        assert_eq!(round_trip(&recipe), recipe);
    }

    #[test]
    fn hostile_records_are_refused() {
        let fails = |change: &dyn Fn(&mut v1::Data), says: &str| {
            let mut recipe = sample();
            recipe.step.inputs[1].transforms = vec![Transform::Flip { axis: 1 }];
            let mut record = to_record(&recipe).unwrap();
            change(&mut record);
            let mut read = from_record(v1::recipe::to_record(&recipe)).unwrap();
            let error = add_record(record, &mut read).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        fails(&|r| r.transforms[0].input = "z".into(), "no input `z`");
        fails(&|r| r.transforms[0].function = 2, "function 2 has no input");
        // `x` has transforms in section `recipe`.
        fails(&|r| r.transforms[0].input = "x".into(), "no input `x`");
        fails(&|r| r.transforms[0].transforms[0] = "rotate 1".into(), "no transform `rotate`");
        fails(&|r| r.transforms[0].transforms[0] = "flip 0".into(), "makes no sense");
        fails(&|r| r.blocks = Some((0, 1)), "rows of a block must be at least 1");
    }
}
