"""The staircase. The order is the law: a lesson uses common and the lessons above it here."""

LESSONS = [
    "00_first_kernel",
    "01_safetensors",
    "02_tokenizer",
    "03_embedding",
    "04_rmsnorm",
    "05_rope",
    "06_matmul",
    "07_attention",
    "08_feed_forward",
    "09_forward_pass",
    "10_kv_cache",
    "11_sampling",
    "12_continuous_batching",
    "13_paged_attention",
    "14_engine",
]
