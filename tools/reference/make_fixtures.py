"""Writes the reference fixtures of tests/fixtures with Hugging Face transformers, on the CPU.

    python3 tools/reference/make_fixtures.py

Each model runs twice, once in f32 (its bf16 weights widened) and once in bf16. The f32 run is the
truth; the distance of the bf16 run from it is the yardstick for an engine that computes in bf16.
tests/fixtures/README.md names the tensors. Needs torch, transformers and safetensors; the versions
used are in each file's metadata.
"""

import argparse
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama import modeling_llama

GENERATED = 64  # tokens of a greedy continuation, at most

# name: (messages or a raw text, every how many positions the logits are kept, layers whose
# activations are kept)
POCKET_CASES = {
    "pocket_sum": ([("user", "What is 2+2?")], 1, (0, 5)),
    "pocket_raw": ("A warp is a group of", 1, ()),
    "pocket_chat": (
        [
            ("system", "You are a helpful assistant."),
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
            ("user", "And Japan?"),
            ("assistant", "The capital of Japan is Tokyo."),
            ("user", "What does prefill mean?"),
        ],
        4,
        (),
    ),
    "pocket_story": ([("user", "Tell me a short story about a robot and a lighthouse.")], 8, ()),
}
STORY_TOKENS = (
    200  # pocket_story: the prompt and as much of the model's own story as fills this many tokens
)

LLAMA3_SCALING = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}

# Random models whose shapes an engine could get wrong. Written as config.json says it, old and new.
ODD_MODELS = {
    "explicit_head_dim": dict(
        hidden_size=144,
        head_dim=32,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=136,
        num_hidden_layers=2,
        vocab_size=205,
        tie_word_embeddings=False,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_SCALING,
    ),
    "rope_parameters": dict(
        hidden_size=64,
        head_dim=64,
        num_attention_heads=4,
        num_key_value_heads=1,
        intermediate_size=112,
        num_hidden_layers=2,
        vocab_size=131,
        tie_word_embeddings=True,
        rope_parameters=dict(LLAMA3_SCALING, rope_theta=500000.0),
    ),
    "no_scaling": dict(
        hidden_size=160,
        num_attention_heads=5,
        num_key_value_heads=5,
        intermediate_size=200,
        num_hidden_layers=2,
        vocab_size=99,
        tie_word_embeddings=False,
        rope_theta=10000.0,
    ),
    "wide_heads": dict(
        hidden_size=80,
        head_dim=128,
        num_attention_heads=8,
        num_key_value_heads=1,
        intermediate_size=72,
        num_hidden_layers=1,
        vocab_size=150,
        tie_word_embeddings=True,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_SCALING,
    ),
}
ODD_PROMPT = 24  # tokens
FAR_POSITIONS = [0, 1, 100, 5000]
VERSIONS = {"transformers": transformers.__version__, "torch": torch.__version__}


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.no_grad()
def logits_of(model, ids, positions=None):
    """(tokens, vocabulary). The mask is all ones: explicit positions change only the rotation."""
    ids = torch.tensor([ids])
    positions = None if positions is None else torch.tensor([positions])
    return model(
        input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False
    ).logits[0]


@torch.no_grad()
def greedy(model, ids, ends, count):
    """The greedy continuation; an end token is the last one."""
    result, cache, new = [], None, ids
    while len(result) < count and not (result and result[-1] in ends):
        output = model(input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        new = [int(output.logits[0, -1].argmax())]
        result += new
    return result


def activations_of(model, ids, layers):
    """What each piece of the given layers puts out, by name; heads lie side by side."""
    seen, hooks = {}, []

    def keep(name, value):
        seen[name] = value.detach().reshape(len(ids), -1).clone()

    def on_output(module, name):
        hooks.append(
            module.register_forward_hook(
                lambda _, inputs, output: keep(
                    name, output[0] if isinstance(output, tuple) else output
                )
            )
        )

    def on_input(module, name):
        hooks.append(module.register_forward_pre_hook(lambda _, inputs: keep(name, inputs[0])))

    on_output(model.model.embed_tokens, "embedding")
    on_output(model.model.norm, "final_norm")
    for i in layers:
        layer = model.model.layers[i]
        prefix = f"layers.{i}."
        on_output(layer.input_layernorm, prefix + "input_norm")
        on_output(layer.self_attn.q_proj, prefix + "q")
        on_output(layer.self_attn.k_proj, prefix + "k")
        on_output(layer.self_attn.v_proj, prefix + "v")
        on_input(layer.self_attn.o_proj, prefix + "attention")
        on_output(layer.self_attn.o_proj, prefix + "o")
        on_input(layer.post_attention_layernorm, prefix + "after_attention")
        on_output(layer.post_attention_layernorm, prefix + "post_norm")
        on_input(layer.mlp.down_proj, prefix + "swiglu")
        on_output(layer.mlp, prefix + "mlp")
        on_output(layer, prefix + "output")

    # The rotation is a function, not a module: count its calls to know the layer.
    rotate, calls = modeling_llama.apply_rotary_pos_emb, []

    def rotate_and_keep(q, k, *arguments, **named):
        rotated = rotate(q, k, *arguments, **named)
        if len(calls) in layers:
            for name, value in zip(("q_rope", "k_rope"), rotated):  # (1, heads, tokens, head_dim)
                keep(f"layers.{len(calls)}.{name}", value[0].transpose(0, 1))
        calls.append(1)
        return rotated

    modeling_llama.apply_rotary_pos_emb = rotate_and_keep
    try:
        logits_of(model, ids)
    finally:
        modeling_llama.apply_rotary_pos_emb = rotate
        for hook in hooks:
            hook.remove()
    assert len(calls) == len(model.model.layers)
    return seen


def int32(values):
    return torch.tensor(values, dtype=torch.int32)


def compare(full, half):
    """Per position: the f32 run's top-two gap, and how far the bf16 run is from it."""
    top = full.topk(2, dim=-1).values
    difference = half.float() - full
    return {
        "gap": (top[:, 0] - top[:, 1]).contiguous(),
        "argmax": full.argmax(dim=-1).to(torch.int32),
        "norm": full.norm(dim=-1),
        "bf16_error": difference.norm(dim=-1),
        "bf16_max_error": difference.abs().amax(dim=-1),
    }


def run_case(full, half, ids, ends, every=1, layers=(), generate=GENERATED):
    """The tensors of one prompt."""
    logits, bf16_logits = logits_of(full, ids), logits_of(half, ids)
    kept = sorted(set(range(len(ids) - 1, -1, -every)))
    tensors = {
        "token_ids": int32(ids),
        "logit_positions": int32(kept),
        "logits.f32": logits[kept].contiguous(),
        "logits.bf16": bf16_logits[kept].contiguous(),
    }
    tensors.update(
        {"positions." + name: value for name, value in compare(logits, bf16_logits).items()}
    )
    for label, model in (("f32", full), ("bf16", half)):
        if layers:
            tensors.update(
                {
                    f"{name}.{label}": value
                    for name, value in activations_of(model, ids, layers).items()
                }
            )
        tensors[f"generated.{label}"] = int32(greedy(model, ids, ends, generate))
    # Along the f32 run's own continuation: where its choice is sure, an engine must make the same.
    continued = ids + tensors["generated.f32"].tolist()
    along = compare(logits_of(full, continued), logits_of(half, continued))
    for name in ("gap", "bf16_max_error"):
        tensors["generated." + name] = along[name][len(ids) - 1 : -1].contiguous()
    return tensors


def write(tensors, path, metadata):
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=metadata
    )
    os.chmod(path, 0o644)


def report(name, tensors, path):
    error, norm = tensors["positions.bf16_error"].norm(), tensors["positions.norm"].norm()
    same = tensors["generated.f32"].tolist() == tensors["generated.bf16"].tolist()
    print(
        f"{name:20s} {len(tensors['token_ids']):4d} tokens  bf16 error {error / norm:.5f}"
        f"  greedy {'same' if same else 'differs'}"
        f"  smallest gap {tensors['generated.gap'].min():.3f}"
        f"  {os.path.getsize(path) / 1024:7.0f} KiB"
    )


def pocket(folder, cases, out):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    full, half = load(folder, torch.float32), load(folder, torch.bfloat16)
    ends = full.generation_config.eos_token_id
    for name, (prompt, every, layers) in cases.items():
        if isinstance(prompt, str):
            text = tokenizer.bos_token + prompt
        else:
            messages = [{"role": role, "content": content} for role, content in prompt]
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        ids = tokenizer.encode(text, add_special_tokens=False)
        if name == "pocket_story":
            ids = ids + greedy(full, ids, ends, STORY_TOKENS - len(ids))
            text = tokenizer.decode(ids)
        tensors = run_case(full, half, ids, ends, every, layers)
        metadata = dict(VERSIONS, text=text)
        for label in ("f32", "bf16"):
            metadata["generated_text_" + label] = tokenizer.decode(
                tensors["generated." + label].tolist(), skip_special_tokens=True
            )
        path = os.path.join(out, name + ".safetensors")
        write(tensors, path, metadata)
        report(name, tensors, path)


def random_weights(config, seed):
    """Weights large enough that every part of the model matters, rounded to bf16."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    tensors = {}
    for name, parameter in model.named_parameters():
        value = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1:
            value = 1.0 + 0.2 * value
        elif "embed_tokens" in name:
            value = value * (
                0.2 if config.tie_word_embeddings else 1.0
            )  # tied and large, it would only repeat the input
        else:
            value = (
                value
                * (1.5 if "q_proj" in name or "k_proj" in name or "lm_head" in name else 1.0)
                / parameter.shape[1] ** 0.5
            )
        tensors[name] = value.to(torch.bfloat16)
    return tensors


def odd_model(name, shape, seed, out):
    folder = os.path.join(out, "models", name)
    os.makedirs(folder, exist_ok=True)
    config = dict(
        architectures=["LlamaForCausalLM"],
        attention_bias=False,
        bos_token_id=1,
        eos_token_id=2,
        hidden_act="silu",
        max_position_embeddings=16384,
        mlp_bias=False,
        model_type="llama",
        rms_norm_eps=1e-5,
        torch_dtype="bfloat16",
        **shape,
    )
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(sorted(config.items())), file, indent=2)
        file.write("\n")
    weights = random_weights(transformers.AutoConfig.from_pretrained(folder), seed)
    write(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})

    full, half = load(folder, torch.float32), load(folder, torch.bfloat16)
    generator = torch.Generator().manual_seed(seed + 1)
    ids = [1] + torch.randint(
        3, shape["vocab_size"], (ODD_PROMPT - 1,), generator=generator
    ).tolist()
    tensors = run_case(full, half, ids, [], generate=24)
    far = ids[: len(FAR_POSITIONS)]
    tensors["far.token_ids"], tensors["far.positions"] = int32(far), int32(FAR_POSITIONS)
    tensors["far.logits.f32"], tensors["far.logits.bf16"] = (
        logits_of(m, far, FAR_POSITIONS) for m in (full, half)
    )
    rotary = full.model.rotary_emb
    cos, sin = rotary(torch.zeros(1), torch.tensor([FAR_POSITIONS]))
    dim = cos.shape[-1] // 2  # the second half repeats the first
    tensors["rope.frequencies"], tensors["rope.cos"], tensors["rope.sin"] = (
        rotary.inv_freq,
        cos[0, :, :dim],
        sin[0, :, :dim],
    )
    path = os.path.join(folder, "expected.safetensors")
    write(tensors, path, VERSIONS)
    report(name, tensors, path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/pocket")
    parser.add_argument("--out", default="tests/fixtures")
    parser.add_argument("--only", help="one of: " + ", ".join([*ODD_MODELS, *POCKET_CASES]))
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    torch.manual_seed(0)
    for seed, (name, shape) in enumerate(ODD_MODELS.items()):
        if arguments.only in (None, name):
            odd_model(name, shape, 100 + 10 * seed, arguments.out)
    cases = {name: case for name, case in POCKET_CASES.items() if arguments.only in (None, name)}
    if cases:
        pocket(arguments.model, cases, arguments.out)


if __name__ == "__main__":
    main()
