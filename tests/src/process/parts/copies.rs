//! Workers that write, move, check and remove copies.

use parking_lot::Mutex;
use s3o_model::rebalance::RebalanceRules;
use s3o_workers::{
    Budget, CopySettings, CopyTasks, DrainProgress, DrainWorker, OverReplicationWorker, RebalanceSettings,
    RebalancerWorker, ReconcilerWorker, ReplicatorWorker,
};

use super::{ProcessParts, READER_GRACE};

const COPIES: CopySettings = CopySettings { batch_size: 100, concurrency: 1, reader_grace: READER_GRACE };

impl ProcessParts {
    pub(super) fn replicator(&self) -> ReplicatorWorker {
        ReplicatorWorker {
            catalog: self.catalog.clone(),
            engine: self.engine(),
            fleet: self.fleet.clone(),
            settings: COPIES,
            tasks: CopyTasks::new(Budget::new(1)),
            cleanup_wakeup: self.bell.clone(),
        }
    }

    pub(super) fn over_replication(&self) -> OverReplicationWorker {
        OverReplicationWorker {
            catalog: self.catalog.clone(),
            engine: self.engine(),
            settings: COPIES,
            cleanup_wakeup: self.bell.clone(),
        }
    }

    pub(super) fn drain(&self) -> DrainWorker {
        DrainWorker {
            catalog: self.catalog.clone(),
            engine: self.engine(),
            settings: COPIES,
            tasks: CopyTasks::new(Budget::new(1)),
            progress: DrainProgress::default(),
            cleanup_wakeup: self.bell.clone(),
        }
    }

    pub(super) fn rebalancer(&self) -> RebalancerWorker {
        RebalancerWorker {
            catalog: self.catalog.clone(),
            engine: self.engine(),
            settings: self.rebalance.clone(),
            cleanup_wakeup: self.bell.clone(),
            tasks: CopyTasks::new(Budget::new(1)),
            pass: Mutex::default(),
        }
    }

    pub(super) fn reconciler(&self) -> ReconcilerWorker {
        ReconcilerWorker {
            catalog: self.catalog.clone(),
            fleet: self.fleet.clone(),
            identity: self.identity.clone(),
            engine: self.engine(),
            settings: self.reconcile.clone(),
            instance: self.instance,
            ids: self.ids.clone(),
            cleanup_wakeup: self.bell.clone(),
        }
    }
}

/// Small pages, so that a pass has several.
pub(in crate::process) const fn rebalance_settings(rules: RebalanceRules) -> RebalanceSettings {
    RebalanceSettings { rules, batch_size: 4, concurrency: 2, reader_grace: READER_GRACE }
}
