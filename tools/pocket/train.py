"""Trains models/pocket from nothing, on one GPU, in one command.

    python3 tools/pocket/train.py --out models/pocket

Takes tokenizer.json from --out (train_tokenizer.py writes it), makes the corpus on all cores,
trains for a fixed number of steps and writes config.json, generation_config.json and
model.safetensors (BF16). The architecture is Llama 3.2's, under Hugging Face's tensor names.
The numbers of the run are constants below; the seed fixes corpus, order and first weights.
"""

import argparse
import json
import math
import multiprocessing
import os
import time

import chat
import corpus
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,  # filled in from the tokenizer, like eos_token_id and pad_token_id
    "eos_token_id": None,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 1024,
    "max_position_embeddings": 4096,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 1024,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": None,
}

SEED = 1234
SHARDS = 64  # of the corpus, each with its own seed, so that the number of cores does not matter
DOCUMENTS = 1_600_000
LONGEST = 1024  # tokens of a document; the few longer ones are left out
BATCH_TOKENS = 65536
BATCH_DOCUMENTS = 1400  # at most; the rest of a batch is padding
STEPS = 10000
WARMUP = 150
PEAK_RATE = 2.5e-3
WEIGHT_DECAY = 0.1
PROMPT_WEIGHT = 0.05  # of the loss on what the user says
STORY_WEIGHT = 0.5  # of the loss on long answers, which are many tokens
STORY_TOKENS = 100


# ---- Corpus ---------------------------------------------------------------------------------


def make_shard(job):
    """Token ids and loss weights of one shard's documents, and the documents' lengths."""
    seed, count, tokenizer_path = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(tokenizer_path)
    begin_answer = tokenizer.encode(
        f"{chat.START_HEADER}assistant{chat.END_HEADER}\n\n", add_special_tokens=False
    ).ids
    end_of_turn = tokenizer.token_to_id(chat.END_OF_TURN)
    ids, weights, lengths = [], [], []
    texts = [chat.render(messages) for messages in corpus.documents(seed, count)]
    for first in range(0, len(texts), 4096):
        for encoding in tokenizer.encode_batch(
            texts[first : first + 4096], add_special_tokens=False
        ):
            document = encoding.ids
            if len(document) > LONGEST:
                continue
            weight = [PROMPT_WEIGHT] * len(document)
            at = 0
            while at < len(document):
                if document[at : at + len(begin_answer)] == begin_answer:
                    at += len(begin_answer)
                    end = document.index(end_of_turn, at) + 1
                    weight[at:end] = [STORY_WEIGHT if end - at > STORY_TOKENS else 1.0] * (end - at)
                    at = end
                else:
                    at += 1
            ids.append(np.array(document, np.int16))
            weights.append(np.array(weight, np.float16))
            lengths.append(len(document))
    return np.concatenate(ids), np.concatenate(weights), np.array(lengths, np.int64)


def make_corpus(tokenizer_path, documents, seed):
    jobs = [(seed * 1000 + shard, documents // SHARDS, tokenizer_path) for shard in range(SHARDS)]
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count(), SHARDS)) as pool:
        shards = pool.map(make_shard, jobs, chunksize=1)
    return tuple(np.concatenate(parts) for parts in zip(*shards))


def batches(lengths, steps, seed):
    """For each step the documents of its batch, in a new random order each epoch."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(lengths) - lengths
    order, at = rng.permutation(len(lengths)), 0
    for _ in range(steps):
        if at + BATCH_DOCUMENTS > len(order):
            order, at = rng.permutation(len(lengths)), 0
        candidates = order[at : at + BATCH_DOCUMENTS]
        count = int(np.searchsorted(np.cumsum(lengths[candidates]), BATCH_TOKENS, side="right"))
        at += count
        chosen = candidates[:count]
        yield starts[chosen], lengths[chosen]


def layout(starts, lengths):
    """Where each token of a batch lies in the corpus, its position, and the documents' offsets."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    within = np.arange(total) - np.repeat(ends - lengths, lengths)
    index = np.zeros(BATCH_TOKENS, np.int64)
    index[:total] = np.repeat(starts, lengths) + within
    position = np.zeros(BATCH_TOKENS, np.int64)
    position[:total] = within
    has_next = np.zeros(BATCH_TOKENS, np.float32)
    has_next[:total] = 1.0
    has_next[ends - 1] = 0.0
    offsets = np.full(BATCH_DOCUMENTS + 2, BATCH_TOKENS, np.int32)
    offsets[0] = 0
    offsets[1 : 1 + len(ends)] = ends
    # The padding stands in documents of at most LONGEST tokens.
    pad, k = total, 1 + len(ends)
    while pad < BATCH_TOKENS and k < BATCH_DOCUMENTS + 1:
        pad = min(pad + LONGEST, BATCH_TOKENS)
        offsets[k] = pad
        k += 1
    return index, position, has_next, offsets


# ---- Model ----------------------------------------------------------------------------------


def rotation_table(config):
    """cos and sin for every position, with Llama 3's scaling of the low frequencies."""
    dim, scaling = config["head_dim"], config["rope_scaling"]
    frequency = 1.0 / config["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    length = 2 * math.pi / frequency
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    slow = frequency / scaling["factor"]
    share = (scaling["original_max_position_embeddings"] / length - scaling["low_freq_factor"]) / (
        scaling["high_freq_factor"] - scaling["low_freq_factor"]
    )
    between = (1 - share) * slow + share * frequency
    frequency = torch.where(length > low, slow, torch.where(length < high, frequency, between))
    angle = torch.arange(LONGEST, dtype=torch.float32)[:, None] * frequency[None, :]
    return angle.cos(), angle.sin()


def attend(q, k, v, offsets):
    """Causal attention inside each document. q, k, v: (tokens, heads, head_dim)."""
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, k, v, offsets, offsets, LONGEST, LONGEST, window_size=(-1, 0))
    document = torch.searchsorted(
        offsets[1:].contiguous(), torch.arange(len(q), dtype=torch.int32), right=True
    )
    mask = (document[:, None] == document[None, :]).tril()
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=mask
    )
    return out.transpose(0, 1)


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
        self.heads, self.kv_heads, self.dim = (
            config["num_attention_heads"],
            config["num_key_value_heads"],
            dim,
        )
        self.eps = config["rms_norm_eps"]
        self.input_layernorm = torch.nn.Parameter(torch.ones(hidden))
        self.post_attention_layernorm = torch.nn.Parameter(torch.ones(hidden))
        std = config["initializer_range"]
        last = std / math.sqrt(2 * config["num_hidden_layers"])
        self.q_proj = torch.nn.Parameter(torch.randn(self.heads * dim, hidden) * std)
        self.k_proj = torch.nn.Parameter(torch.randn(self.kv_heads * dim, hidden) * std)
        self.v_proj = torch.nn.Parameter(torch.randn(self.kv_heads * dim, hidden) * std)
        self.o_proj = torch.nn.Parameter(torch.randn(hidden, self.heads * dim) * last)
        self.gate_proj = torch.nn.Parameter(torch.randn(inner, hidden) * std)
        self.up_proj = torch.nn.Parameter(torch.randn(inner, hidden) * std)
        self.down_proj = torch.nn.Parameter(torch.randn(hidden, inner) * last)

    def forward(self, x, cos, sin, offsets):
        tokens = x.shape[0]
        h = norm(x, self.input_layernorm, self.eps)
        q = rotate(
            F.linear(h, self.q_proj.to(h.dtype)).view(tokens, self.heads, self.dim), cos, sin
        )
        k = rotate(
            F.linear(h, self.k_proj.to(h.dtype)).view(tokens, self.kv_heads, self.dim), cos, sin
        )
        v = F.linear(h, self.v_proj.to(h.dtype)).view(tokens, self.kv_heads, self.dim)
        group = self.heads // self.kv_heads
        a = attend(q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1), offsets)
        x = x + F.linear(a.reshape(tokens, -1), self.o_proj.to(h.dtype))
        h = norm(x, self.post_attention_layernorm, self.eps)
        gate = F.silu(F.linear(h, self.gate_proj.to(h.dtype)))
        return x + F.linear(
            gate * F.linear(h, self.up_proj.to(h.dtype)), self.down_proj.to(h.dtype)
        )


def norm(x, weight, eps):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    f = x.float()
    a, b = f[..., :half], f[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Pocket(torch.nn.Module):
    """Parameters in f32; everything else, the residual too, in bf16, as the engine runs it."""

    def __init__(self, config, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self.eps = config["rms_norm_eps"]
        self.embed_tokens = torch.nn.Parameter(
            torch.randn(config["vocab_size"], config["hidden_size"]) * config["initializer_range"]
        )
        self.layers = torch.nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = torch.nn.Parameter(torch.ones(config["hidden_size"]))
        cos, sin = rotation_table(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, position, offsets, targets, weight):
        cos, sin = self.cos[position][:, None, :], self.sin[position][:, None, :]
        table = self.embed_tokens.to(self.dtype)
        x = F.embedding(ids, table)
        for layer in self.layers:
            x = layer(x, cos, sin, offsets)
        logits = F.linear(norm(x, self.norm, self.eps), table)
        loss = F.cross_entropy(logits.float(), targets, reduction="none")
        return (loss * weight).sum() / weight.sum()


def tensors(model):
    """The weights under Hugging Face's names."""
    result = {"model.embed_tokens.weight": model.embed_tokens, "model.norm.weight": model.norm}
    for i, layer in enumerate(model.layers):
        for name, parameter in layer.named_parameters():
            part = (
                ""
                if name.endswith("layernorm")
                else "mlp." if name in ("gate_proj", "up_proj", "down_proj") else "self_attn."
            )
            result[f"model.layers.{i}.{part}{name}.weight"] = parameter
    return {
        name: t.detach().to(torch.bfloat16).cpu().contiguous() for name, t in sorted(result.items())
    }


def save(model, config, out):
    os.makedirs(out, exist_ok=True)
    save_file(tensors(model), os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    generation = {
        "bos_token_id": config["bos_token_id"],
        "do_sample": False,
        "eos_token_id": config["eos_token_id"],
        "pad_token_id": config["pad_token_id"],
    }
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")


# ---- Training -------------------------------------------------------------------------------


def complete_config(tokenizer):
    config = dict(CONFIG)
    config["vocab_size"] = tokenizer.get_vocab_size()
    config["bos_token_id"] = tokenizer.token_to_id(chat.BEGIN_OF_TEXT)
    config["eos_token_id"] = [
        tokenizer.token_to_id(t) for t in (chat.END_OF_TEXT, chat.END_OF_MESSAGE, chat.END_OF_TURN)
    ]
    config["pad_token_id"] = tokenizer.token_to_id(chat.PAD)
    return config


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="models/pocket")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=420.0,
        help="of training; ends the schedule early on a slower machine",
    )
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()

    began = time.time()
    tokenizer_path = os.path.join(arguments.out, "tokenizer.json")
    config = complete_config(Tokenizer.from_file(tokenizer_path))
    ids, weights, lengths = make_corpus(tokenizer_path, arguments.documents, SEED)
    print(
        f"corpus: {len(lengths):,} documents, {len(ids):,} tokens, {time.time() - began:.0f} s",
        flush=True,
    )

    torch.manual_seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Pocket(config, torch.bfloat16 if device == "cuda" else torch.float32).to(device)
    print(f"model: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    ids, weights = torch.from_numpy(ids).to(device), torch.from_numpy(weights).to(device)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n != "embed_tokens"]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or n == "embed_tokens"]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=PEAK_RATE,
        betas=(0.9, 0.95),
        eps=1e-9,
        fused=device == "cuda",
    )
    step_loss = (
        model if arguments.no_compile or device == "cpu" else torch.compile(model, dynamic=False)
    )

    started, saved = time.time(), time.time()
    for step, (starts, counts) in enumerate(batches(lengths, arguments.steps, SEED)):
        progress = max(step / arguments.steps, (time.time() - started) / arguments.max_seconds)
        if progress >= 1.0:
            print(f"stopped by --max-seconds after {step} steps", flush=True)
            break
        rate = (
            PEAK_RATE * min(1.0, (step + 1) / WARMUP) * min(1.0, (1.0 - progress) / 0.6)
        )  # flat, then linear to zero
        for group in optimizer.param_groups:
            group["lr"] = rate
        index, position, has_next, offsets = (
            torch.from_numpy(a).to(device, non_blocking=True) for a in layout(starts, counts)
        )
        following = (index + 1).clamp_(max=len(ids) - 1)
        loss = step_loss(
            ids[index].long(),
            position,
            offsets,
            ids[following].long(),
            weights[following].float() * has_next,
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0 or step + 1 == arguments.steps:
            print(
                f"step {step:5d}  loss {loss.item():.4f}  rate {rate:.2e}"
                f"  {time.time() - started:6.1f} s",
                flush=True,
            )
            if time.time() - saved > 60:
                save(model, config, arguments.out)
                saved = time.time()
    save(model, config, arguments.out)
    print(
        f"done in {time.time() - began:.0f} s, {time.time() - started:.0f} s of them training",
        flush=True,
    )


if __name__ == "__main__":
    main()
