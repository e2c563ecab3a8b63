//! The options of `s3o bench`.

use std::time::Duration;

use clap::Args;
use s3o_backend::s3::Secret;
use s3o_model::{duration, size};

use crate::plan::Workload;

/// Options of `s3o bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// S3 endpoint, or the endpoints of all instances of one store, which get requests in turn
    #[arg(long, value_name = "URLS", value_delimiter = ',', default_value = "http://127.0.0.1:9000")]
    pub endpoint: Vec<String>,
    /// Access key ID
    #[arg(long, value_name = "ID", env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    pub access_key: String,
    /// Secret access key
    #[arg(long, value_name = "SECRET", env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    pub secret_key: Secret,
    /// Region for signatures
    #[arg(long, value_name = "NAME", default_value = "us-east-1")]
    pub region: String,
    /// Bucket; created if it is missing. Objects of this run are deleted at the end
    #[arg(long, value_name = "NAME", default_value = "s3o-bench")]
    pub bucket: String,
    /// Workloads, run in this order
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "put,get,head,list,delete,mixed"
    )]
    pub workloads: Vec<Workload>,
    /// Object sizes; HEAD and DELETE use the first one only
    #[arg(long, value_name = "LIST", value_parser = size::parse, value_delimiter = ',', default_value = "4KiB,1MiB")]
    pub sizes: Vec<u64>,
    /// Numbers of concurrent requests
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,16,64")]
    pub concurrency: Vec<usize>,
    /// Duration of each line of the table
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    pub duration: Duration,
    /// Maximum number of requests of each line of the table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub max_ops: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Processes that serve the endpoint on this machine; adds their CPU time and memory to the table
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Metrics URLs of the endpoint, if it is s3o; adds catalog transactions per request to the table
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// Names of the endpoints in the table
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "A,B")]
    pub names: Vec<String>,
    /// Also print the table as Markdown at the end
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Instead of the table: measure deletes of this many objects, singly and in batches, until their bytes are deleted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "drain")]
    pub deletes: Option<u64>,
    /// Instead of the table: measure how s3o empties its cleanup queue
    #[arg(long, requires_all = ["metrics", "pid", "token"])]
    pub drain: bool,
    /// Instead of the table: measure copying every object of this store (a folder, or the URL of a bucket) to
    /// --transfer-to; connections: the first --concurrency value
    #[arg(long, value_name = "STORE", requires = "transfer_to", conflicts_with_all = ["deletes", "drain"])]
    pub transfer: Option<String>,
    /// Target of --transfer; a folder is created if it is missing
    #[arg(long, value_name = "STORE", requires = "transfer")]
    pub transfer_to: Option<String>,
    /// Prefix of the keys that --transfer copies
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub transfer_prefix: String,
    /// Admin token for the admin API of the first metrics URL
    #[arg(long, value_name = "TOKEN", env = "S3O_ADMIN_TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// Second endpoint, measured in turns with the first; ratios are printed at the end
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub compare: Vec<String>,
    /// Access key ID for the second endpoint [default: that of the first]
    #[arg(long, value_name = "ID", requires = "compare")]
    pub compare_access_key: Option<String>,
    /// Secret access key for the second endpoint [default: that of the first]
    #[arg(long, value_name = "SECRET", requires = "compare")]
    pub compare_secret_key: Option<Secret>,
    /// Processes that serve the second endpoint
    #[arg(long, value_name = "PIDS", value_delimiter = ',', requires = "compare")]
    pub compare_pid: Vec<u32>,
    /// Metrics URLs of the second endpoint
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "compare")]
    pub compare_metrics: Vec<String>,
}
