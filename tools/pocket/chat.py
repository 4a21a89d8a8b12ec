"""Llama 3's chat format and special tokens, as the engine uses them."""

BEGIN_OF_TEXT = "<|begin_of_text|>"
END_OF_TEXT = "<|end_of_text|>"
START_HEADER = "<|start_header_id|>"
END_HEADER = "<|end_header_id|>"
END_OF_MESSAGE = "<|eom_id|>"
END_OF_TURN = "<|eot_id|>"
PAD = "<|finetune_right_pad_id|>"

# In Llama 3's order; the ids follow those of the ordinary tokens.
SPECIAL_TOKENS = [
    BEGIN_OF_TEXT,
    END_OF_TEXT,
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    PAD,
    "<|reserved_special_token_2|>",
    START_HEADER,
    END_HEADER,
    END_OF_MESSAGE,
    END_OF_TURN,
    "<|python_tag|>",
    "<|reserved_special_token_3|>",
    "<|reserved_special_token_4|>",
    "<|reserved_special_token_5|>",
    "<|reserved_special_token_6|>",
    "<|reserved_special_token_7|>",
]

# For Hugging Face's apply_chat_template: no system message unless one is given.
TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- endif %}"
)


def render(messages, generate=False):
    """The text of a list of (role, content)."""
    text = BEGIN_OF_TEXT
    for role, content in messages:
        text += f"{START_HEADER}{role}{END_HEADER}\n\n{content.strip()}{END_OF_TURN}"
    if generate:
        text += f"{START_HEADER}assistant{END_HEADER}\n\n"
    return text
