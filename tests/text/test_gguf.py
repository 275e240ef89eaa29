"""Checkpoints in llama.cpp's form become checkpoints in the form of the hub, with equal states."""

from pathlib import Path

import gguf
import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from stages.text.packaged import convert

MERGES = ["a b", "ab c"]
TOKENS = ["<s>", "</s>", *sorted(ByteLevel.alphabet()), "ab", "abc"]


def interleaved(weight: Tensor, num_heads: int) -> Tensor:
    """Returns a matrix of queries or keys in llama.cpp's order of rows."""
    rows, width = weight.shape
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, width)
    return halves.swapaxes(1, 2).reshape(rows, width)


def write_gguf(model: LlamaForCausalLM, path: Path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.named_parameters():
        if num_heads := heads.get(name.split(".")[-2]):
            weight = interleaved(weight, num_heads)
        writer.add_tensor(str(names.get_name(name, (".weight",))), weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_model_of_llama_cpp_has_the_states_of_the_model_that_was_written(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    folder = tmp_path / "small"
    folder.mkdir()
    write_gguf(model, folder / "small.gguf")
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    convert(folder / "small.gguf")

    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        file.name for file in folder.iterdir()
    }
    assert not [*folder.glob("*.py"), *folder.glob("*.gguf")]
    ids = AutoTokenizer.from_pretrained(folder)("abc a", return_tensors="pt").input_ids
    assert ids[0, 0] == TOKENS.index("abc")
    converted = LlamaForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(converted(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
