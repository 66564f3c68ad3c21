/* links: model_families model_blocks */
/* config.json of every family: keys read, refused and renamed; tensor tables, initial weights, rotary
 * tables. */
#include "tests/config_text.h"

#include "base/mem.h"
#include "model/blocks/blocks.h"
#include "model/families/families.h"

#include <math.h>

#define QWEN2 "\"model_type\":\"qwen2\",\"num_hidden_layers\":2"
#define PHI3                                                                                                 \
	"\"model_type\":\"phi3\",\"vocab_size\":40,\"hidden_size\":16,\"num_hidden_layers\":2,"              \
	"\"num_attention_heads\":4"
#define OLMO3 "\"model_type\":\"olmo3\",\"head_dim\":4,\"num_hidden_layers\":2"
#define GEMMA4 "\"model_type\":\"gemma4_text\",\"num_hidden_layers\":4,\"hidden_size_per_layer_input\":0"
#define YARN "\"rope_type\":\"yarn\",\"factor\":2.0"

/* A config.json that is refused, and the words that its message must have. */
static const struct {
	const char *config;
	int code;
	const char *says;
} refused[] = {
        /* what kind of model */
        {"{}", ERR_INPUT, "model_type is missing"},
        {"[1]", ERR_INPUT, "not an object"},
        {"{\"model_type\":null}", ERR_INPUT, "model_type is missing"},
        {"{\"model_type\":7}", ERR_INPUT, "model_type"},
        {"{\"model_type\":\"mllama\"}", ERR_UNSUPPORTED, "supported: llama, mistral, "},
        {"{\"model_type\":\"xlm_roberta\"}", ERR_UNSUPPORTED, ", roberta, xlm-roberta, "},
        {"{\"model_type\":\"gemma3\"}", ERR_INPUT,
                "text_config is missing; a gemma3 model of transformers has one"},
        {"{\"model_type\":\"gemma3\",\"text_config\":[]}", ERR_INPUT, "text_config"},
        {"{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"mpt\"}}", ERR_UNSUPPORTED,
                "text_config: model_type \"mpt\" is not supported"},
        {"{\"model_type\":\"llava\",\"text_config\":{},\"quantization_config\":{\"bits\":8}}",
                ERR_UNSUPPORTED, "text_config: quantization_config: quant_method (none) is not supported"},
        {"{\"model_type\":\"qwen2_vl\",\"vocab_size\":37}", ERR_INPUT, "rms_norm_eps is missing"},
        {"{\"model_type\":\"gemma2\",\"final_logit_softcapping\":0}", ERR_INPUT,
                "final_logit_softcapping is 0; it must be above 0"},
        {"{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":-1}", ERR_INPUT,
                "attn_logit_softcapping is -1"},
        {"{\"model_type\":\"granite\",\"residual_multiplier\":0}", ERR_INPUT,
                "residual_multiplier is 0; it must be above 0"},
        {"{\"model_type\":\"gemma2\",\"query_pre_attn_scalar\":0}", ERR_INPUT, "query_pre_attn_scalar is 0"},
        {"{\"model_type\":\"gemma\",\"use_bidirectional_attention\":true}", ERR_UNSUPPORTED,
                "use_bidirectional_attention is true"},
        {"{\"model_type\":\"vaultgemma\",\"use_bidirectional_attention\":true}", ERR_UNSUPPORTED,
                "use_bidirectional_attention is true"},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":null}", ERR_UNSUPPORTED,
                "sliding_window is null"},
        {"{\"model_type\":\"gemma3_text\",\"rope_local_base_freq\":0}", ERR_INPUT, "rope theta is 0"},
        {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"none\"}"
         "}}",
                ERR_UNSUPPORTED, "rope type \"none\""},
        {"{\"model_type\":\"muse_glimmer_text\",\"layer_rope_theta\":[0]}", ERR_INPUT,
                "layer_rope_theta has 1 entries; there are 52 layers"},
        {"{\"model_type\":\"muse_glimmer_text\",\"num_hidden_layers\":1,\"layer_rope_theta\":[\"0\"]}",
                ERR_INPUT, "layer_rope_theta[0] is not a number"},
        {"{\"model_type\":\"muse_glimmer_text\",\"output_multiplier\":0}", ERR_INPUT,
                "output_multiplier is 0; it must be above 0"},
        {"{\"model_type\":\"muse_glimmer_text\",\"sliding_window\":null}", ERR_UNSUPPORTED,
                "sliding_window is null"},
        {"{\"model_type\":\"lfm2\",\"conv_L_cache\":9}", ERR_INPUT, "conv_L_cache is 9; it must be 1 .. 8"},
        {"{\"model_type\":\"lfm2\",\"num_hidden_layers\":1,\"layer_types\":[\"mamba\"]}", ERR_UNSUPPORTED,
                "layer_types[0] is mamba; supported: conv, full_attention"},
        {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[1.5]}", ERR_INPUT, "full_attn_idxs[0]"},
        {"{\"model_type\":\"lfm2\",\"block_ff_dim\":1}", ERR_INPUT, "the MLP would be 0 wide"},
        {"{\"model_type\":\"lfm2\",\"block_ffn_dim_multiplier\":1e9}", ERR_INPUT, "block_ffn_dim_multiplier"},
        {"{" GEMMA4 ",\"enable_moe_block\":true}", ERR_INPUT, "enable_moe_block needs num_experts, top_k"},
        {"{" GEMMA4
         ",\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":5,\"moe_intermediate_size\":8}",
                ERR_INPUT, "top_k_experts is 5, but num_experts is only 4"},
        {"{" GEMMA4 ",\"use_bidirectional_attention\":\"all\"}", ERR_UNSUPPORTED,
                "use_bidirectional_attention is all"},
        {"{" GEMMA4 ",\"use_bidirectional_attention\":\"al\"}", ERR_INPUT,
                "use_bidirectional_attention must be null, \"vision\" or \"all\""},
        {"{" GEMMA4 ",\"use_bidirectional_attention\":1}", ERR_INPUT, "use_bidirectional_attention must be"},
        {"{\"model_type\":\"gemma4\",\"tie_word_embeddings\":1,\"text_config\":{" GEMMA4 "}}", ERR_INPUT,
                "tie_word_embeddings"},
        {"{\"model_type\":\"gemma4\",\"tie_word_embeddings\":true,\"text_config\":{" GEMMA4
         ",\"tie_word_embeddings\":\"no\"}}",
                ERR_INPUT, "tie_word_embeddings"},
        {"{" GEMMA4 ",\"num_kv_shared_layers\":4}", ERR_INPUT, "no layer before these is of the kind"},
        {"{" GEMMA4 ",\"num_kv_shared_layers\":5}", ERR_INPUT, "num_kv_shared_layers is 5"},
        {"{" GEMMA4 ",\"global_head_dim\":7}", ERR_INPUT, "head_dim must be even"},
        {"{" GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}", ERR_INPUT,
                "layer 3: num_attention_heads 8 is not a multiple of num_key_value_heads 3"},
        {"{" GEMMA4 ",\"per_layer_config\":{\"4\":{}}}", ERR_INPUT, "per_layer_config has \"4\""},
        {"{" GEMMA4 ",\"per_layer_config\":{\"0\":{\"intermediate_size\":8}}}", ERR_UNSUPPORTED,
                "layer 0: intermediate_size is not supported"},
        {"{" GEMMA4 ",\"per_layer_config\":{\"0\":{\"head_dim\":8}}}", ERR_UNSUPPORTED,
                "layer 1: head_dim is 256, but another layer of its kind has 8"},
        {"{" GEMMA4 ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", ERR_INPUT,
                "rope_parameters has no sliding_attention"},
        {"{" GEMMA4 ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}}", ERR_UNSUPPORTED,
                "rope_scaling is not supported"},
        {"{\"model_type\":\"gemma4_text\",\"vocab_size_per_layer_input\":9}", ERR_UNSUPPORTED,
                "vocab_size_per_layer_input is 9, less than vocab_size"},
        {"{\"model_type\":\"deepseek_v4\"}", ERR_UNSUPPORTED, "deepseek_v4"},
        {"{\"model_type\":\"deberta-v2\"}", ERR_UNSUPPORTED, "deberta-v2"},
        {"{\"model_type\":\"mpnet\",\"relative_attention_num_buckets\":9}", ERR_INPUT, "num_buckets"},
        {"{" LLAMA ",\"architectures\":[\"LlamaForQuestionAnswering\"]}", ERR_UNSUPPORTED,
                "LlamaForQuestionAnswering"},
        {"{" LLAMA ",\"architectures\":[7]}", ERR_INPUT, "architectures[0]"},
        {"{" LLAMA ",\"architectures\":\"LlamaForCausalLM\"}", ERR_INPUT, "architectures"},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", ERR_UNSUPPORTED,
                "quantization_config"},
        {"{" LLAMA ",\"per_layer_config\":{\"0\":{\"hidden_act\":\"relu\"}}}", ERR_UNSUPPORTED,
                "per_layer_config"},
        {"{" LLAMA ",\"is_encoder_decoder\":true}", ERR_UNSUPPORTED, "is_encoder_decoder"},
        {"{" GPT2 ",\"add_cross_attention\":true}", ERR_UNSUPPORTED, "add_cross_attention"},
        {"{" GPT2 ",\"pruned_heads\":{\"0\":[1]}}", ERR_UNSUPPORTED, "pruned_heads"},
        /* sizes */
        {"{\"model_type\":\"llama\",\"vocab_size\":0}", ERR_INPUT, "vocab_size is 0"},
        {"{\"model_type\":\"llama\",\"vocab_size\":-5}", ERR_INPUT, "vocab_size is -5"},
        {"{\"model_type\":\"llama\",\"vocab_size\":99999999999}", ERR_INPUT, "vocab_size is 99999999999"},
        {"{\"model_type\":\"llama\",\"vocab_size\":1e300}", ERR_INPUT, "vocab_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":\"64\"}", ERR_INPUT, "hidden_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":64.5}", ERR_INPUT, "hidden_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":true}", ERR_INPUT, "hidden_size"},
        {"{\"model_type\":\"llama\",\"intermediate_size\":-1}", ERR_INPUT, "intermediate_size is -1"},
        {"{\"model_type\":\"llama\",\"intermediate_size\":2000000000}", ERR_INPUT, "intermediate_size"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":-2}", ERR_INPUT, "num_hidden_layers is -2"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":4000000000}", ERR_INPUT, "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"num_attention_heads\":0}", ERR_INPUT, "num_attention_heads is 0"},
        {"{\"model_type\":\"llama\",\"num_attention_heads\":3}", ERR_INPUT, "not a multiple"},
        {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}", ERR_INPUT, "num_key_value_heads 5"},
        {"{\"model_type\":\"llama\",\"num_key_value_heads\":-1}", ERR_INPUT, "num_key_value_heads is -1"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":4097}", ERR_INPUT, "it must be 1 .. 4096"},
        {"{\"model_type\":\"llama\",\"head_dim\":0}", ERR_INPUT, "head_dim is 0"},
        {"{\"model_type\":\"llama\",\"head_dim\":16000000}", ERR_INPUT, "head_dim 16000000"},
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":0}", ERR_INPUT, "max_position_embeddings"},
        {"{\"model_type\":\"mistral\",\"num_attention_heads\":12}", ERR_INPUT, "num_key_value_heads 8"},
        {"{\"model_type\":\"qwen2\",\"num_attention_heads\":28}", ERR_INPUT, "num_key_value_heads 32"},
        {"{\"model_type\":\"qwen2\",\"hidden_size\":16}", ERR_INPUT, "hidden_size 16 is less"},
        {"{\"model_type\":\"qwen3\",\"head_dim\":null}", ERR_INPUT, "head_dim is null"},
        {"{\"model_type\":\"gpt2\",\"n_head\":7}", ERR_INPUT, "n_head 7"},
        {"{\"model_type\":\"gpt2\",\"n_inner\":0}", ERR_INPUT, "n_inner is 0"},
        {"{\"model_type\":\"gpt2\",\"n_positions\":-1}", ERR_INPUT, "n_positions is -1"},
        {"{" NEOX ",\"head_dim\":4}", ERR_UNSUPPORTED, "head_dim 4"},
        {"{\"model_type\":\"llama\",\"vocab_size\":2147483647,\"hidden_size\":16777216,"
         "\"intermediate_size\":16777216,\"num_hidden_layers\":4096,\"num_attention_heads\":2,"
         "\"head_dim\":2}",
                ERR_INPUT, "more parameters"},
        /* numbers and flags */
        {"{" LLAMA ",\"rms_norm_eps\":-1e-5}", ERR_INPUT, "rms_norm_eps is -1e-05"},
        {"{" LLAMA ",\"rms_norm_eps\":\"1e-5\"}", ERR_INPUT, "rms_norm_eps"},
        {"{" LLAMA ",\"initializer_range\":-0.1}", ERR_INPUT, "initializer_range"},
        {"{" LLAMA ",\"attention_bias\":1}", ERR_INPUT, "attention_bias"},
        {"{" LLAMA ",\"mlp_bias\":\"yes\"}", ERR_INPUT, "mlp_bias"},
        {"{" LLAMA ",\"tie_word_embeddings\":0}", ERR_INPUT, "tie_word_embeddings"},
        {"{" LLAMA ",\"hidden_act\":\"mish\"}", ERR_UNSUPPORTED, "mish"},
        {"{" LLAMA ",\"hidden_act\":\"gelu_10\"}", ERR_UNSUPPORTED, "gelu_10"},
        {"{" LLAMA ",\"hidden_act\":\"silly\"}", ERR_INPUT, "silly"},
        {"{" LLAMA ",\"hidden_act\":3}", ERR_INPUT, "hidden_act"},
        {"{" LLAMA ",\"pad_token_id\":40}", ERR_INPUT, "pad_token_id is 40"},
        {"{" LLAMA ",\"pad_token_id\":-41}", ERR_INPUT, "pad_token_id is -41"},
        {"{" LLAMA ",\"eos_token_id\":\"x\"}", ERR_INPUT, "eos_token_id"},
        {"{" LLAMA ",\"eos_token_id\":[1,null]}", ERR_INPUT, "eos_token_id"},
        {"{" LLAMA ",\"eos_token_id\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", ERR_UNSUPPORTED, "eos_token_id"},
        /* windows */
        {"{\"model_type\":\"mistral\",\"sliding_window\":0}", ERR_INPUT, "sliding_window is 0"},
        {"{\"model_type\":\"mistral\",\"sliding_window\":-3}", ERR_INPUT, "sliding_window is -3"},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":0}", ERR_INPUT, "sliding_window is 0"},
        {"{" QWEN2 ",\"layer_types\":[\"full_attention\"]}", ERR_INPUT, "layer_types has 1"},
        {"{" QWEN2 ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", ERR_INPUT,
                "layer_types[1]"},
        {"{" QWEN2 ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}", ERR_UNSUPPORTED,
                "linear_attention"},
        {"{" QWEN2 ",\"layer_types\":[1,2]}", ERR_UNSUPPORTED, "layer_types[0]"},
        {"{" QWEN2 ",\"layer_types\":\"full_attention\"}", ERR_INPUT, "layer_types"},
        /* rotary */
        {"{" LLAMA ",\"rope_theta\":0}", ERR_INPUT, "rope theta is 0"},
        {"{" LLAMA ",\"rope_theta\":-10000.0}", ERR_INPUT, "rope theta is -10000"},
        {"{" LLAMA ",\"rope_theta\":\"10000\"}", ERR_INPUT, "rope_theta"},
        {"{" LLAMA ",\"rope_scaling\":[1]}", ERR_INPUT, "rope_scaling"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2.0}}", ERR_INPUT,
                "short_factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1]}}",
                ERR_INPUT, "long_factor has 1 numbers, but a head has 2"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,0]}}", ERR_INPUT,
                "short_factor[1]"},
        {"{" PHI3 ",\"pad_token_id\":0,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", ERR_INPUT,
                "linear"},
        {"{" PHI3 "}", ERR_INPUT, "pad_token_id is missing"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\"}}", ERR_UNSUPPORTED, "proportional"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":7}}", ERR_INPUT, "rope_type"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", ERR_INPUT, "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", ERR_INPUT, "factor is 0"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":null}}", ERR_INPUT,
                "factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"high_freq_factor\":4.0}}",
                ERR_INPUT, "low_freq_factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":0,"
         "\"high_freq_factor\":4.0}}",
                ERR_INPUT, "low_freq_factor is 0"},
        {"{" LLAMA ",\"rope_scaling\":{" YARN ",\"original_max_position_embeddings\":0}}", ERR_INPUT,
                "original_max_position_embeddings is 0"},
        {"{" LLAMA ",\"rope_scaling\":{" YARN ",\"beta_fast\":-1}}", ERR_INPUT, "beta_fast is -1"},
        {"{" LLAMA ",\"rope_theta\":1,\"rope_scaling\":{" YARN "}}", ERR_INPUT, "rope_theta"},
        {"{" LLAMA ",\"rope_scaling\":{" YARN ",\"truncate\":\"no\"}}", ERR_INPUT, "truncate"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", ERR_UNSUPPORTED,
                "full_attention"},
        {"{" LLAMA ",\"head_dim\":5}", ERR_INPUT, "head_dim must be even"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
                ERR_UNSUPPORTED, "partial_rotary_factor"},
        {"{" OLMO3 ",\"sliding_window\":null}", ERR_UNSUPPORTED, "sliding_window is null; olmo3 needs"},
        {"{" OLMO3 ",\"rope_scaling\":{" YARN "},\"rope_parameters\":{\"full_attention\":{}}}",
                ERR_UNSUPPORTED, "both there"},
        {"{" OLMO3
         ",\"rope_parameters\":{\"sliding_attention\":{\"type\":\"longrope\",\"short_factor\":[1,1],"
         "\"long_factor\":[1,1]}}}",
                ERR_UNSUPPORTED, "sliding_attention: longrope"},
        {"{\"model_type\":\"cwm\",\"sliding_window\":null}", ERR_UNSUPPORTED, "cwm needs a number"},
        {"{\"model_type\":\"hyperclovax\",\"logits_scaling\":0}", ERR_INPUT, "logits_scaling is 0"},
        {"{\"model_type\":\"hunyuan_v1_dense\",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":-1}}",
                ERR_INPUT, "alpha is -1"},
        {"{\"model_type\":\"ministral3\",\"rope_scaling\":{" YARN "}}", ERR_INPUT,
                "llama_4_scaling_beta is missing"},
        {"{\"model_type\":\"ministral3\",\"rope_parameters\":{\"llama_4_scaling_beta\":0.1}}", ERR_INPUT,
                "original_max_position_embeddings is missing"},
        {"{\"model_type\":\"gptj\",\"rotary_dim\":3}", ERR_INPUT, "rotary_dim is 3"},
        {"{\"model_type\":\"gptj\",\"rotary_dim\":null}", ERR_INPUT, "rotary_dim is null"},
        {"{\"model_type\":\"gptj\",\"n_head\":128}", ERR_INPUT, "rotary_dim is 64"},
        {"{\"model_type\":\"gpt_neo\",\"num_layers\":2}", ERR_INPUT, "attention_types is missing"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[[[\"global\"],3]]}", ERR_INPUT,
                "attention_types describes 3 blocks; there are 24"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[[[\"global\"],9000000000]]}", ERR_INPUT,
                "attention_types describes at least 25 blocks"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[[[\"near\"],24]]}", ERR_INPUT,
                "block 0 attends by near"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[\"global\"]}", ERR_INPUT,
                "attention_types[0] must be a list"},
        {"{\"model_type\":\"gpt_neo\",\"attention_layers\":[\"local\"]}", ERR_INPUT,
                "attention_layers has 1 entries"},
        {"{\"model_type\":\"gpt_neo\",\"window_size\":0}", ERR_INPUT, "window_size is 0"},
        {"{\"model_type\":\"gpt_bigcode\",\"multi_query\":1}", ERR_INPUT, "multi_query"},
        {"{\"model_type\":\"opt\",\"do_layer_norm_before\":false}", ERR_UNSUPPORTED,
                "do_layer_norm_before is false"},
        {"{\"model_type\":\"opt\",\"_remove_final_layer_norm\":true}", ERR_UNSUPPORTED,
                "_remove_final_layer_norm is true"},
        {"{\"model_type\":\"opt\",\"word_embed_proj_dim\":512}", ERR_UNSUPPORTED,
                "word_embed_proj_dim is 512"},
        {"{\"model_type\":\"opt\",\"layerdrop\":0.1}", ERR_UNSUPPORTED, "layerdrop is 0.1"},
        {"{\"model_type\":\"opt\",\"init_std\":-1}", ERR_INPUT, "init_std is -1"},
        {"{\"model_type\":\"olmo\",\"clip_qkv\":0}", ERR_INPUT, "clip_qkv is 0"},
        {"{\"model_type\":\"falcon\",\"alibi\":true}", ERR_UNSUPPORTED, "alibi is true"},
        {"{\"model_type\":\"falcon\",\"new_decoder_architecture\":true,\"num_kv_heads\":8}", ERR_INPUT,
                "num_kv_heads is 8; it must divide num_attention_heads, 71"},
        {"{\"model_type\":\"falcon\",\"multi_query\":false,\"num_kv_heads\":8}", ERR_INPUT,
                "num_kv_heads is 8; it must equal num_attention_heads, 71"},
        {"{\"model_type\":\"falcon\",\"new_decoder_architecture\":true,\"parallel_attn\":false}",
                ERR_UNSUPPORTED, "parallel_attn is false"},
        {"{\"model_type\":\"falcon\",\"num_ln_in_parallel_attn\":2}", ERR_UNSUPPORTED,
                "num_ln_in_parallel_attn is 2"},
        {"{\"model_type\":\"falcon\",\"num_ln_in_parallel_attn\":3}", ERR_INPUT,
                "num_ln_in_parallel_attn is 3"},
        {"{" NEOX ",\"rotary_pct\":1.5}", ERR_INPUT, "rotary_pct is 1.5"},
        {"{" NEOX ",\"rotary_pct\":-0.5}", ERR_INPUT, "rotary_pct is -0.5"},
        {"{" NEOX ",\"rotary_pct\":0.4,\"rope_scaling\":{" YARN "}}", ERR_UNSUPPORTED,
                "even number of rotary"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct model *model = NULL;
		int code = open_text(&model, refused[i].config);

		if (code != refused[i].code || !strstr(err_text(), refused[i].says) || model ||
		        strncmp(err_text(), "config.json: ", 13)) {
			print_error("%s\ngave %d, \"%s\"; wanted %d and \"%s\"\n", refused[i].config, code,
			        err_text(), refused[i].code, refused[i].says);
			fail();
		}
	}
}

/* Every key of every family with every kind of value: taken, or refused with a message that names the file.
 */
static void test_any_value(void **state)
{
#define FAMILY_OF(name) &family_##name,
	static const struct model_family *const families[] = {FAMILY_LIST(FAMILY_OF)};
#undef FAMILY_OF
	static const char *const keys[] = {"architectures", "quantization_config", "per_layer_config",
	        "pruned_heads", "is_encoder_decoder", "add_cross_attention", "vocab_size", "hidden_size",
	        "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
	        "head_dim", "max_position_embeddings", "initializer_range", "hidden_act", "rms_norm_eps",
	        "attention_bias", "mlp_bias", "tie_word_embeddings", "pad_token_id", "bos_token_id",
	        "eos_token_id", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
	        "original_max_position_embeddings", "sliding_window", "use_sliding_window",
	        "max_window_layers", "layer_types", "n_embd", "n_layer", "n_head", "n_positions", "n_inner",
	        "activation_function", "layer_norm_epsilon", "scale_attn_weights",
	        "scale_attn_by_inverse_layer_idx", "layer_norm_eps", "use_parallel_residual", "rotary_pct",
	        "rotary_emb_base", "no_rope_layers", "no_rope_layer_interval", "sliding_window_pattern",
	        "use_bias", "qk_layernorm", "use_qkv_bias", "norm_epsilon", "attention_out_bias",
	        "use_post_norm", "logits_scaling", "attention_multiplier", "rotary_dim", "num_layers",
	        "num_heads", "attention_types", "attention_layers", "window_size", "multi_query",
	        "do_layer_norm_before", "word_embed_proj_dim", "enable_bias", "layerdrop", "init_std",
	        "ffn_dim", "clip_qkv", "layer_norm_elementwise_affine", "new_decoder_architecture",
	        "num_kv_heads", "parallel_attn", "num_ln_in_parallel_attn", "ffn_hidden_size", "activation",
	        "bias", "post_norm_eps", "qk_scale_factor", "output_multiplier", "final_logit_softcapping",
	        "layer_rope_theta", "conv_L_cache", "conv_bias", "tie_embedding", "block_ff_dim",
	        "block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim", "full_attn_idxs",
	        "norm_eps"};
	static const char *const values[] = {"null", "true", "false", "-1", "0", "1", "2", "3", "1000000000",
	        "9000000000000000000", "0.5", "-0.5", "1e-320", "1e308", "\"\"", "\"linear\"", "[]", "[1]",
	        "[null]", "[[],{}]", "{}", "{\"a\":1}", "{\"type\":\"yarn\",\"factor\":1e-300}",
	        ("{\"type\":\"llama3\",\"factor\":1e300,\"low_freq_factor\":1e300,\"high_freq_factor\":1e-"
	         "300}")};
	enum { TYPES = sizeof(families) / sizeof(*families), KEYS = sizeof(keys) / sizeof(*keys) };
	int taken = 0, left = 0;

	(void)state;
	for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++)
		for (int i = 0; i < TYPES * KEYS; i++) {
			const char *key = keys[i / TYPES], *type = families[i % TYPES]->model_type;
			struct model *model;
			json_t *config = json_pack(
			        "{s:s, s:i, s:i}", "model_type", type, "num_hidden_layers", 1, "n_layer", 1);
			json_t *value = json_loads(values[v], JSON_DECODE_ANY, NULL);
			float table[2 * 128];
			int err;

			assert_true(config && value);
			json_object_set_new(config, key, value);
			err = model_open(&model, config, "config.json");
			if (!err) {
				taken++;
				if (model_rope_table_count(model, 2) <= 2 * 128)
					model_rope_table(model, table, 2);
				assert_true(model->parameter_count > 0);
				assert_true(model_acts_bytes(model, 1, DTYPE_F32, INT32_MAX) > 0);
				assert_true(model_scratch_bytes(
				                    model, 1, DTYPE_F32, INT32_MAX, INT32_MAX, 0) > 0);
				assert_true(model_scratch_bytes(model, model->group_count - 1, DTYPE_F32,
				                    INT32_MAX, INT32_MAX, 4096) > 0);
			} else {
				left++;
				if ((err != ERR_INPUT && err != ERR_UNSUPPORTED) ||
				        strncmp(err_text(), "config.json: ", 13)) {
					print_error("%s, %s = %s: %d, \"%s\"\n", type, key, values[v], err,
					        err_text());
					fail();
				}
			}
			model_close(model);
			json_decref(config);
		}
	assert_true(taken > 1000 && left > 1000);
}

/* Things that look odd and are fine. */
static void test_accepted(void **state)
{
	static const char *const accepted[] = {
	        "{" LLAMA "}",
	        "{" LLAMA ",\"quantization_config\":null,\"pruned_heads\":{},\"architectures\":null}",
	        "{" LLAMA ",\"architectures\":[]}",
	        "{" LLAMA ",\"architectures\":[\"LlamaModel\"]}",
	        "{" LLAMA ",\"architectures\":[\"MyLlamaForCausalLM\"],\"auto_map\":{}}",
	        "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":null,\"attention_bias\":"
	        "null}",
	        "{" LLAMA ",\"rope_scaling\":{},\"rope_parameters\":null}",
	        "{" LLAMA ",\"torch_dtype\":\"float16\",\"dtype\":\"bfloat16\",\"id2label\":{\"0\":\"a\"}}",
	        "{\"model_type\":\"mistral\",\"num_key_value_heads\":null,\"num_hidden_layers\":1}",
	        "{" QWEN2 ",\"sliding_window\":0}",
	        "{" GPT2
	        ",\"architectures\":[\"GPT2LMHeadModel\"],\"n_ctx\":8,\"summary_type\":\"cls_index\"}",
	        "{" NEOX ",\"rotary_pct\":0}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(accepted) / sizeof(*accepted); i++) {
		struct model *model;

		check_ok(open_text(&model, accepted[i]));
		model_close(model);
	}
}

/* ---- tables ---- */

/* Every tensor is read by one stage, the embedding also by a tied head. */
static void check_stages(const struct model *model)
{
	int *uses = mem_alloc((size_t)model->tensor_count, sizeof(*uses));
	int embed = model_tensor_of(model, ROLE_EMBED, -1);

	for (int s = 0; s < model->stage_count; s++)
		for (int i = 0; i < model->stages[s].tensor_count; i++)
			uses[model->stages[s].tensor[i]]++;
	for (int t = 0; t < model->tensor_count; t++)
		assert_int_equal(uses[t], t == embed && model->config.tied ? 2 : 1);
	for (int t = 0; t < model->tensor_count; t++) {
		assert_int_equal(model_tensor_of(model, model->tensors[t].role, model->tensors[t].layer), t);
		assert_int_equal(model_find_tensor(model, model->tensors[t].name), t);
	}
	mem_free(uses);
}

static void test_untie(void **state)
{
	struct model *model;
	int64_t count, tensors;

	(void)state;
	check_ok(open_text(&model, "{" GPT2 "}"));
	check_stages(model);
	count = model->parameter_count;
	tensors = model->tensor_count;
	check_ok(model_untie(model));
	check_ok(model_untie(model));
	check_stages(model);
	assert_int_equal(model->parameter_count, count + 40 * 16);
	assert_int_equal(model->tensor_count, tensors + 1);
	assert_int_equal(model_find_tensor(model, "lm_head.weight"), tensors);
	model_close(model);
}

/* A name of the list is in `arg`; the head's other name counts too. */
static int is_named(const char *name, const char *other_name, void *arg)
{
	return strstr(name, arg) || (other_name && strstr(other_name, arg));
}

static int refuses(const char *name, const char *other_name, void *arg)
{
	(void)name;
	(void)other_name;
	(void)arg;
	return ERR_INPUT;
}

static void test_trainable(void **state)
{
	struct model *model;
	int64_t count;

	(void)state;
	check_ok(open_text(&model, "{" GPT2 "}"));
	for (int t = 0; t < model->tensor_count; t++)
		assert_int_equal(model->tensors[t].trainable, 1);
	check_ok(model_set_trainable(model, &count, is_named, "h.1."));
	for (int t = 0; t < model->tensor_count; t++)
		assert_int_equal(model->tensors[t].trainable, model->tensors[t].layer == 1);
	assert_int_equal(count, 4 * (16 * 16) + 2 * 4 * 16 * 16 + 13 * 16);

	/* a tied head: one tensor, by either name; untied, both are what it was */
	check_ok(model_set_trainable(model, &count, is_named, "lm_head"));
	assert_int_equal(count, 40 * 16);
	check_ok(model_untie(model));
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_EMBED, -1)].trainable, 1);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_HEAD_W, -1)].trainable, 1);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_NORM1_W, 0)].trainable, 0);
	check_ok(model_set_trainable(model, &count, is_named, "lm_head"));
	assert_int_equal(count, 40 * 16);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_EMBED, -1)].trainable, 0);
	assert_int_equal(model_set_trainable(model, &count, refuses, NULL), ERR_INPUT);
	model_close(model);
}

static void test_out_of_memory(void **state)
{
	static const char *const configs[] = {
	        "{" LLAMA "}", "{" QWEN2 ",\"use_sliding_window\":true}", "{" GPT2 "}"};

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
		json_t *config;
		int err = ERR_NOMEM;

		check_ok(json_parse(&config, "config.json", configs[i], strlen(configs[i])));
		for (int64_t n = 1; err; n++) {
			struct model *model;

			mem_fault_arm(n, MEM_FAULT_FOREVER);
			err = model_open(&model, config, "config.json");
			mem_fault_arm(0, MEM_FAULT_ONCE);
			if (err)
				assert_int_equal(err, ERR_NOMEM);
			for (int64_t m = 1; !err && m > 0; m++) {
				mem_fault_arm(m, MEM_FAULT_FOREVER);
				if (!model_untie(model))
					m = -1;
				mem_fault_arm(0, MEM_FAULT_ONCE);
				check_stages(model);
			}
			model_close(model);
		}
		json_decref(config);
	}
}

/* ---- numbers ---- */

static void test_init(void **state)
{
	struct model *model, *other;
	double sum = 0, squares = 0;
	int embed, norm;

	(void)state;
	check_ok(open_text(
	        &model, "{" LLAMA ",\"initializer_range\":0.5,\"pad_token_id\":7,\"mlp_bias\":true}"));
	embed = model_tensor_of(model, ROLE_EMBED, -1);
	norm = model_tensor_of(model, ROLE_NORM2_W, 1);
	for (int64_t i = 0; i < 40 * 16; i++) {
		double v = model_init_value(model, embed, i, 5);

		if (i / 16 == 7)
			assert_true(v == 0);
		sum += v;
		squares += v * v;
	}
	assert_true(fabs(sum / 624) < 0.1);
	assert_true(fabs(sqrt(squares / 624) - 0.5) < 0.05);
	assert_true(model_init_value(model, norm, 3, 5) == 1);
	assert_true(model_init_value(model, model_tensor_of(model, ROLE_UP_B, 0), 3, 5) == 0);
	assert_true(model_init_value(model, embed, 3, 5) == model_init_value(model, embed, 3, 5));
	assert_true(model_init_value(model, embed, 3, 5) != model_init_value(model, embed, 3, 6));
	assert_true(model_init_value(model, embed, 3, 5) != model_init_value(model, embed, 4, 5));
	assert_true(model_init_value(model, embed, 3, 5) != model_init_value(model, embed + 1, 3, 5));
	model_close(model);

	/* GPT-2's residual projections start smaller: 1 / sqrt(2 L) */
	check_ok(open_text(&model, "{" GPT2 "}"));
	check_ok(open_text(&other, "{" GPT2 ",\"initializer_range\":0.04}"));
	assert_true(fabs(model->config.residual_initializer_range - 0.01) < 1e-12);
	assert_true(fabs(model_init_value(model, model_tensor_of(model, ROLE_O_W, 1), 9, 1) * 2 -
	                    model_init_value(other, model_tensor_of(other, ROLE_O_W, 1), 9, 1)) < 1e-6);
	model_close(model);
	model_close(other);

	/* none at all, as in transformers: every matrix begins at zero */
	for (int i = 0; i < 2; i++) {
		check_ok(open_text(&model,
		        i ? "{" GPT2 ",\"initializer_range\":0}" : "{" LLAMA ",\"initializer_range\":0.0}"));
		for (int t = 0; t < model->tensor_count; t++)
			assert_true(model->tensors[t].rank < 2 || model_init_value(model, t, 9, 1) == 0);
		model_close(model);
	}
}

static void test_flops(void **state)
{
	struct model *model;
	double block = 4 * 16 * 16 + 3 * 16 * 24;

	(void)state;
	check_ok(open_text(&model, "{" LLAMA "}"));
	assert_true(model_flops_per_token(model, 100) == 6 * (2 * block + 16 * 40) + 6 * 2 * 16 * 100);
	check_ok(model_untie(model)); /* a tied model counts the same */
	assert_true(model_flops_per_token(model, 100) == 6 * (2 * block + 16 * 40) + 6 * 2 * 16 * 100);
	model_close(model);
}

static void test_rope_table(void **state)
{
	struct model *model;
	float table[3 * 8];

	(void)state;
	check_ok(open_text(&model, "{" GPT2 "}"));
	assert_int_equal(model_rope_table_count(model, 100), 0);
	model_close(model);
	check_ok(open_text(&model, "{" NEOX ",\"rotary_pct\":1}"));
	assert_int_equal(model_rope_table_count(model, 3), 24);
	model_rope_table(model, table, 3);
	for (int p = 0; p < 3; p++)
		for (int j = 0; j < 4; j++) {
			double angle = p * pow(10000, -j / 4.0);

			assert_true(table[p * 8 + j] == (float)cos(angle));
			assert_true(table[p * 8 + 4 + j] == (float)sin(angle));
		}
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_any_value),
	        cmocka_unit_test(test_accepted),
	        cmocka_unit_test(test_untie),
	        cmocka_unit_test(test_trainable),
	        cmocka_unit_test(test_out_of_memory),
	        cmocka_unit_test(test_init),
	        cmocka_unit_test(test_flops),
	        cmocka_unit_test(test_rope_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
