//! A GPU as one of the ranks of a world.
//!
//! The world compares the plan on all ranks, as it does on CPUs, and its communicators carry the
//! identities by which NCCL finds the other GPUs. The data of collectives go by NCCL.

use std::sync::Arc;
use wengert_core::Result;
use wengert_core::plan::Plan;
use wengert_cpu::World;
use wengert_cuda::driver::Device;
use wengert_cuda::driver::nccl::{Exchanges, Group};
use wengert_cuda::executable::Ranks;

/// The ranks that a GPU has joined.
#[derive(Debug)]
pub(super) struct Joined {
    world: World,
    exchanges: Arc<Exchanges>,
}

impl Joined {
    /// Error: NCCL cannot be used.
    pub fn new(device: &Device, world: World) -> Result<Joined> {
        let exchanges = device.exchanges(world.timeout())?;
        Ok(Joined { world, exchanges })
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// Joins the other ranks for a plan.
    ///
    /// Errors: as of [`World::enter`]; NCCL fails on a rank.
    pub fn enter(&self, plan: &Plan) -> Result<Ranks> {
        let entered = self.world.enter(plan)?;
        let joined = entered.groups().map(|(over, group)| {
            let (position, size) = (group.position, group.size);
            if !group.exchanges() {
                return Ok((over.clone(), Group { position, size, communicator: None }));
            }
            let name = format!("{} over {}", plan.mesh, over.join(", "));
            let gather = |own| group.all_gather(own);
            Ok((over.clone(), self.exchanges.join(&name, position, size, &gather)?))
        });
        Ok(Ranks { exchanges: self.exchanges.clone(), groups: joined.collect::<Result<_>>()? })
    }
}
