/* links: cli */
/* LoRA in the words of other trainers. */
#include "cli/cli.h"
#include "tests/cli_round.h"

/* Files as people have them. */

#define AXOLOTL                                                                                              \
	"base_model: models/llama\ndatasets:\n  - path: rows.jsonl\n    type: alpaca\nsequence_len: 2048\n"  \
	"micro_batch_size: 2\noutput_dir: out\nload_in_8bit: false\nload_in_4bit: false\n"
#define LORA_AXOLOTL                                                                                         \
	AXOLOTL "adapter: lora\nlora_model_dir:\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\n"
#define EXPERTS "lora_target_parameters:\n  - mlp.experts.gate_up_proj\n  - mlp.experts.down_proj\n"
#define QUANTIZED "base_model: m\ndatasets:\n  - path: rows.jsonl\n    type: alpaca\nmicro_batch_size: 2\n"
#define LLAMA_FACTORY "model_name_or_path: m\nstage: sft\ndataset: rows.json\noutput_dir: o\n"
#define TRL "model_name_or_path: m\ndataset_name: rows.jsonl\noutput_dir: o\n"
#define TORCHTUNE                                                                                            \
	"checkpointer:\n  checkpoint_dir: m\n  adapter_checkpoint: null\noutput_dir: o\n"                    \
	"save_adapter_weights_only: False\nbatch_size: 2\nbatch_size_val: ${batch_size}\nlow_cpu_ram: "      \
	"False\n"                                                                                            \
	"run_val_every_n_steps: null\ndataset_val:\n  _component_: "                                         \
	"torchtune.datasets.alpaca_cleaned_dataset\n"                                                        \
	"  split: train[95%:]\nmodel:\n  _component_: "                                                      \
	"torchtune.models.llama3_1.lora_llama3_1_8b\n"
#define OBJECT                                                                                               \
	TRL "peft_config:\n  peft_type: LORA\n  r: 4\n  lora_alpha: 12\n  target_modules:\n    - q_proj\n"   \
	    "    - v_proj\n  lora_dropout: 0.1\n  bias: none\n  task_type: CAUSAL_LM\n  modules_to_save: "   \
	    "[]\n"                                                                                           \
	    "  rank_pattern: {}\n  init_lora_weights: true\n  use_rslora: true\n"

static const char torchtune[] =
        TORCHTUNE "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  apply_lora_to_mlp: True\n"
                  "  apply_lora_to_output: False\n  lora_rank: 16\n  lora_alpha: 48\n  lora_dropout: 0.0\n"
                  "  use_dora: False\n  quantize_base: False\n";

static const struct {
	const char *yaml, *words, *key, *text;
} asked[] = {
        {LORA_AXOLOTL "lora_target_linear: true\n", "", "lora_rank", "32"},
        {TORCHTUNE "  lora_attn_modules: [q_proj]\n  apply_lora_to_output: True\n  lora_rank: 8\n", "",
                "lora_target_modules", "q_proj,lm_head"},
        {LORA_AXOLOTL "lora_target_linear: true\n", "", "lora_alpha", "16"},
        {LORA_AXOLOTL "lora_target_linear: true\n", "", "lora_dropout", "0.05"},
        {LORA_AXOLOTL "lora_target_linear: true\nrl: dpo\n", "", "lora_dropout", "0"},
        {TRL "use_peft: true\nlora_dropout: 0\nlora_target_modules: all-linear\n", "", "lora_dropout", "0"},
        {TRL "use_peft: true\nloss_type: sigmoid\ndisable_dropout: false\nlora_target_modules: all-linear\n",
                "", "lora_dropout", "0.05"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\n", "", "lora_dropout", "0.05"},
        {OBJECT, "", "lora_dropout", "0.1"},
        {LORA_AXOLOTL "lora_target_linear: true\nneftune_noise_alpha: 5\n", "", "neftune_noise_alpha", "5"},
        {LORA_AXOLOTL "lora_target_linear: true\nloraplus_lr_ratio: 16\nloraplus_lr_embedding: 1e-6\n", "",
                "loraplus_lr_ratio", "16"},
        {LORA_AXOLOTL "lora_target_linear: true\nlora_target_modules:\n", "", "lora_target_modules",
                "all-linear"},
        {LORA_AXOLOTL "lora_target_linear: false\nlora_target_modules:\n  - q_proj\n  - v_proj\n", "",
                "lora_target_modules", "q_proj,v_proj"},
        {LORA_AXOLOTL "lora_target_linear: true\nlora_target_modules: [lm_head]\n", "", "lora_target_modules",
                "all-linear,lm_head"},
        {LORA_AXOLOTL "lora_target_modules: q_proj\n", "", "lora_target_modules", "q_proj"},
        {AXOLOTL "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules: []\n" EXPERTS, "",
                "lora_target_modules", ""},
        {AXOLOTL "adapter: lora\nlora_r: 8\nlora_alpha: 16\n" EXPERTS, "", "lora_target_modules", ""},
        {AXOLOTL "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n" EXPERTS, "",
                "lora_target_modules", "all-linear"},
        {AXOLOTL "adapter: lora\nlora_r: 8\nlora_alpha: 16\n" EXPERTS, "", "lora_target_parameters",
                "[\"mlp.experts.gate_up_proj\",\"mlp.experts.down_proj\"]"},
        {TRL "use_peft: true\nlora_dropout: 0\n" EXPERTS, "", "lora_target_modules", ""},
        {TRL "peft_config:\n  target_modules: [q_proj]\n  lora_dropout: 0\n  target_parameters: "
             "[experts.down_proj]\n",
                "", "lora_target_parameters", "experts.down_proj"},
        {LORA_AXOLOTL "lora_target_linear: true\npeft_use_rslora: true\n", "", "use_rslora", "on"},
        {LORA_AXOLOTL "lora_target_linear: true\npeft_use_dora: true\n", "", "use_dora", "on"},
        {LORA_AXOLOTL "lora_target_linear: true\npeft_use_dora: false\n", "", "use_dora", "off"},
        {LLAMA_FACTORY "finetuning_type: lora\nuse_dora: true\n", "", "use_dora", "on"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nuse_dora: true\n", "", "use_dora", "on"},
        {OBJECT "  use_dora: true\n", "", "use_dora", "on"},
        {torchtune, "model.use_dora=true", "use_dora", "on"},
        {LORA_AXOLOTL
                "lora_target_modules: 'model.language_model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n",
                "", "lora_target_modules", "model.language_model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj"},
        {QUANTIZED "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "", "base_format", "nf4"},
        {QUANTIZED "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "", "base_double_quant", "on"},
        {QUANTIZED "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "", "base_block_size", "64"},
        {QUANTIZED "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "", "base_format", "int8"},
        {QUANTIZED
                "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: "
                "true\nbnb_config_kwargs:\n  bnb_4bit_quant_type: fp4\n  bnb_4bit_use_double_quant: false\n",
                "", "base_format", "fp4"},
        {QUANTIZED
                "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: "
                "true\nbnb_config_kwargs:\n  bnb_4bit_quant_type: fp4\n  bnb_4bit_use_double_quant: false\n",
                "", "base_double_quant", "off"},
        {QUANTIZED "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "base_format=bf16", "base_format", "bf16"},
        {QUANTIZED "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
                "base_double_quant=off", "base_double_quant", "off"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\n", "", "base_format",
                "nf4"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\n", "", "base_double_quant",
                "off"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\nuse_bnb_nested_quant: "
             "true\nbnb_4bit_quant_type: nf4\n",
                "", "base_double_quant", "on"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\nbnb_4bit_compute_dtype: "
             "float32\n",
                "", "compute_dtype", "fp32"},
        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_8bit: true\n", "", "base_format",
                "int8"},
        {LLAMA_FACTORY "finetuning_type: lora\nquantization_bit: 4\nquantization_method: bnb\n", "",
                "base_format", "nf4"},
        {LLAMA_FACTORY "finetuning_type: lora\nquantization_bit: 4\n", "", "base_double_quant", "on"},
        {LLAMA_FACTORY "finetuning_type: lora\nquantization_bit: 8\n", "", "base_format", "int8"},
        {LLAMA_FACTORY "finetuning_type: lora\nquantization_bit: 4\ndouble_quantization: "
                       "false\nquantization_type: fp4\n",
                "", "base_format", "fp4"},
        {LLAMA_FACTORY "finetuning_type: lora\nquantization_bit: 4\ndouble_quantization: "
                       "false\nquantization_type: fp4\n",
                "", "base_double_quant", "off"},
        {TORCHTUNE "  lora_attn_modules: [q_proj]\n  lora_rank: 8\n  quantize_base: True\n", "",
                "base_format", "nf4"},
        {"recipe: bf16\nlora: true\nqlora_fp8: true\n", "", "base_format", "fp8"},
        {"recipe: bf16\nlora: true\nqlora_bnb: true\nqlora_bnb_block_size: 128\n", "", "base_block_size",
                "128"},
        {"recipe: bf16\nlora: true\nqlora_bnb: true\nqlora_bnb_double_quant: false\n", "",
                "base_double_quant", "off"},
        {TRL "lora_r: 4\nuse_peft: true\nlora_target_modules: all-linear\nlora_rank_pattern:\n  q_proj: 4\n"
             "  mlp.up_proj: 8\n",
                "", "lora_rank_pattern", "{\"q_proj\":4,\"mlp.up_proj\":8}"},
        {TRL "peft_config:\n  r: 4\n  target_modules: all-linear\n  rank_pattern:\n    self_attn.q_proj: 4\n"
             "  alpha_pattern:\n    q_proj: 1.5\n  exclude_modules: [o_proj, down_proj]\n",
                "", "lora_rank_pattern", "{\"self_attn.q_proj\":4}"},
        {TRL "peft_config:\n  r: 4\n  target_modules: all-linear\n  rank_pattern:\n    self_attn.q_proj: 4\n"
             "  alpha_pattern:\n    q_proj: 1.5\n  exclude_modules: [o_proj, down_proj]\n",
                "", "lora_alpha_pattern", "{\"q_proj\":1.5}"},
        {TRL "peft_config:\n  r: 4\n  target_modules: all-linear\n  exclude_modules: [o_proj, down_proj]\n",
                "", "lora_exclude_modules", "o_proj,down_proj"},
        {LORA_AXOLOTL "lora_target_linear: true\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\n", "",
                "lora_modules_to_save", "[\"embed_tokens\",\"lm_head\"]"},
        {LLAMA_FACTORY "finetuning_type: lora\nadditional_target: embed_tokens,lm_head\n", "",
                "lora_modules_to_save", "embed_tokens,lm_head"},
        {TRL "peft_config:\n  r: 4\n  target_modules: all-linear\n  modules_to_save: [lm_head]\n", "",
                "lora_modules_to_save", "lm_head"},
        {LORA_AXOLOTL "lora_target_linear: true\npeft_layers_to_transform: [0, 1]\npeft_layers_pattern: [h, "
                      "layers]\n",
                "", "lora_layers_pattern", "[\"h\",\"layers\"]"},
        {OBJECT "  layers_to_transform: [0]\n  layers_pattern: layers\n", "", "lora_layers_pattern",
                "layers"},
        {LORA_AXOLOTL "lora_target_linear: true\npeft_layers_to_transform: [0, 1]\n", "", "lora_layers",
                "[\"0\",\"1\"]"},
        {TRL, "lora-r=4 lora-rank-pattern.q_proj=2", "lora_rank_pattern", "{\"q_proj\":2}"},
        {LORA_AXOLOTL
                "lora_target_linear: true\npeft_use_dora: false\nlora_modules_to_save: []\n"
                "lora_fan_in_fan_out:\nlora_mlp_kernel: true\nlora_qkv_kernel: true\nlora_o_kernel: true\n",
                "", "use_rslora", "off"},
        {AXOLOTL "adapter: lora\nlora_model_dir: out/adapter\n", "", "lora_adapter", "out/adapter"},
        {AXOLOTL "adapter: lora\nlora_model_dir: out/adapter\n", "", "lora_rank", "off"},
        {LORA_AXOLOTL "lora_target_linear: true\n", "lora_r=4 lora_target_modules=o_proj", "lora_rank", "4"},
        {LORA_AXOLOTL "lora_target_linear: true\n", "lora_r=4 lora_target_modules=o_proj",
                "lora_target_modules", "o_proj"},
        {LORA_AXOLOTL "lora_target_linear: true\n", "adapter=none", "lora_rank", "off"},
        {AXOLOTL, "adapter=lora lora_r=4", "lora_alpha", "auto"},
        {AXOLOTL "adapter:\nlora_r: 8\n", "", "lora_rank", "off"},
        {LLAMA_FACTORY "finetuning_type: lora\n", "", "lora_rank", "8"},
        {LLAMA_FACTORY "finetuning_type: lora\n", "", "lora_alpha", "16"},
        {LLAMA_FACTORY "finetuning_type: lora\n", "", "lora_target_modules", "all-linear"},
        {LLAMA_FACTORY "finetuning_type: lora\nlora_rank: 64\nlora_target: all\n", "", "lora_alpha", "128"},
        {LLAMA_FACTORY "finetuning_type: lora\nlora_alpha: 0\n", "", "lora_alpha", "16"},
        {LLAMA_FACTORY "finetuning_type: lora\nlora_rank: 64\n", "lora_rank=5", "lora_alpha", "10"},
        {LLAMA_FACTORY "finetuning_type: lora\nlora_target: q_proj, v_proj\nuse_rslora: true\n", "",
                "lora_target_modules", "q_proj,v_proj"},
        {LLAMA_FACTORY "finetuning_type: lora\nlora_target: all\n", "", "lora_target_modules", "all-linear"},
        {LLAMA_FACTORY, "", "lora_rank", "8"},
        {LLAMA_FACTORY, "lora_rank=0", "lora_rank", "off"},
        {LLAMA_FACTORY "adapter_name_or_path: saves/a\ncreate_new_adapter: false\npissa_iter: 16\n", "",
                "lora_adapter", "saves/a"},
        {LLAMA_FACTORY "adapter_name_or_path: saves/a\n", "", "lora_rank", "off"},
        {LLAMA_FACTORY "finetuning_type: full\nlora_rank: 8\n", "", "lora_rank", "off"},
        {LLAMA_FACTORY "finetuning_type: full\n", "lora_rank=8", "lora_rank", "8"},
        {TRL "use_peft: true\nlora_target_modules: [q_proj, o_proj]\n", "", "lora_rank", "16"},
        {TRL "use_peft: true\nlora_target_modules: [q_proj, o_proj]\n", "", "lora_alpha", "32"},
        {TRL "use_peft: true\nlora_target_modules: [all-linear]\nlora_r: 4\nlora_task_type: CAUSAL_LM\n", "",
                "lora_target_modules", "all-linear"},
        {TRL "use_peft: false\n", "", "lora_rank", "off"},
        {TRL, "--use-peft --lora-target-modules q_proj", "lora_rank", "16"},
        {TRL, "--use-peft --lora-target-modules q_proj", "lora_target_modules", "q_proj"},
        {TRL "optim: adamw_torch\nlora_rank: 6\n", "", "lora_rank", "6"}, /* ferry's own key */
        {OBJECT, "", "lora_rank", "4"},
        {OBJECT, "", "lora_alpha", "12"},
        {OBJECT, "", "lora_target_modules", "q_proj,v_proj"},
        {OBJECT, "", "use_rslora", "on"},
        {TRL "use_peft: true\npeft_config:\n  target_modules: all-linear\n", "", "lora_alpha", "8"},
        {TRL "peft_config:\n  target_modules: all-linear\nuse_peft: true\n", "", "lora_rank", "8"},
        {TRL "peft_config: null\n", "", "lora_rank", "off"},
        {torchtune, "", "lora_rank", "16"},
        {torchtune, "", "lora_alpha", "48"},
        {torchtune, "", "lora_target_modules", "q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"},
        {TORCHTUNE "  lora_attn_modules: [k_proj]\n", "", "lora_rank", "8"},
        {TORCHTUNE "  lora_attn_modules: [k_proj]\n", "", "lora_alpha", "16"},
        {"use_lora: true\nlora_r: 8\n", "", "lora_rank", "8"},
        {"lora_r: 8\nlora_target_modules: [q_proj, v_proj]\n", "", "lora_target_modules",
                "[\"q_proj\",\"v_proj\"]"},
};

static void test_asked(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, asked[i].yaml, asked[i].words);

		if (err || strcmp(config_text(&c, asked[i].key), asked[i].text))
			fail_msg("case %zu: %s=\"%s\", not \"%s\" %s", i, asked[i].key,
			        err ? "" : config_text(&c, asked[i].key), asked[i].text,
			        err ? err_text() : "");
		assert_round_trip(asked[i].yaml, asked[i].words);
		config_free(&c);
	}
}

/* Where TRL's and PEFT's files name no modules, PEFT's table does, by the model's family. */
static void test_modules_by_family(void **state)
{
	static const struct {
		const char *family, *targets; /* NULL: PEFT must be told */
	} rows[] = {{"llama", "q_proj,v_proj"}, {"gemma3_text", "q_proj,v_proj"},
	        {"phi", "q_proj,v_proj,fc1,fc2"}, {"gpt2", "c_attn"}, {"falcon", "query_key_value"},
	        {"phi3", NULL}, {"olmo2", NULL}};
	char dir[] = "/tmp/ferry_lora_XXXXXX", path[64], yaml[400];
	struct config c;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/config.json", dir);
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
		const char *targets = rows[i / 2].targets;
		FILE *f = fopen(path, "w");
		int err;

		assert_non_null(f);
		fprintf(f, "{\"model_type\": \"%s\"}", rows[i / 2].family);
		fclose(f);
		snprintf(yaml, sizeof(yaml), "model_name_or_path: %s\ndataset_name: d\n%s", dir,
		        i % 2 ? "use_peft: true\n" : "peft_config:\n  r: 8\n");
		err = parse(&c, VERB_TRAIN, yaml, "");
		assert_int_equal(err, targets ? 0 : ERR_INPUT);
		if (targets)
			assert_string_equal(config_text(&c, "lora_target_modules"), targets);
		else
			assert_non_null(strstr(err_text(), "PEFT names no modules for this model; set "));
		assert_round_trip(yaml, "");
		config_free(&c);
	}
	unlink(path);
	rmdir(dir);
}

static void test_said(void **state)
{
	static const struct {
		const char *yaml, *words, *says; /* "!x": not x */
	} rows[] = {
	        {LORA_AXOLOTL "lora_target_linear: true\n", "", "!where nothing is set"},
	        {LORA_AXOLOTL "lora_target_linear: true\n", "", "!dropout"},
	        {LORA_AXOLOTL "lora_target_linear: true\n", "adapter=none lora_dropout=0.1",
	                "lora_dropout=0.1 has no effect without adapters"},
	        {AXOLOTL "lora_dropout: 0.1\n", "", "lora_dropout=0.1 has no effect without adapters"},
	        {LORA_AXOLOTL "lora_target_linear: true\nrl: dpo\n", "",
	                "lora_dropout=0.05: axolotl trains pairs without dropout, and so does ferry"},
	        {LORA_AXOLOTL "lora_target_linear: true\n", "adapter=none",
	                ": lora_r=32 has no effect without adapter: lora, as in axolotl: every weight is "
	                "trained\n"},
	        {LLAMA_FACTORY "finetuning_type: full\nlora_rank: 8\n", "",
	                ": lora_rank=8 has no effect without finetuning_type: lora, as in LLaMA-Factory: "
	                "every "
	                "weight is trained\n"},
	        {AXOLOTL "lora_model_dir: a\n", "",
	                ": lora_model_dir=a has no effect without adapter: lora, as in"},
	        {LLAMA_FACTORY, "",
	                "LoRA, with the defaults of LLaMA-Factory where nothing is set: lora_rank=8, "
	                "lora_alpha=16, lora_target_modules=all-linear\n"},
	        {LLAMA_FACTORY, "",
	                ": LLaMA-Factory trains LoRA adapters unless its file says otherwise; for every "
	                "weight set "
	                "finetuning_type=full\n"},
	        {LLAMA_FACTORY, "", "!dropout"},
	        {LLAMA_FACTORY "finetuning_type: full\n", "", "!LoRA"},
	        {TRL "use_peft: true\nlora_target_modules: [q_proj, v_proj]\n", "",
	                "lora_target_modules=q_proj,v_proj, lora_dropout=0.05\n"},
	        {"adapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n", "",
	                "reading it as a configuration of axolotl"},
	        {"adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
	                "", ": load_in_8bit=true: base_format=int8 keeps the outliers in 8 bits too"},
	        {"stage: sft\nfinetuning_type: lora\nquantization_bit: 3\nquantization_method: hqq\n", "",
	                ": quantization_bit=3: ferry has no such format; the base stays in bf16"},
	        {"stage: sft\nfinetuning_type: lora\nquantization_bit: 4\nquantization_method: hqq\n", "",
	                ": quantization_method=hqq: ferry has the formats of bitsandbytes; base_format=nf4"},
	        {"recipe: bf16\nlora: true\nqlora_fp4: true\n", "",
	                ": qlora_fp4=true: ferry has no such format; the base stays in bf16"},
	        {TRL "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\n"
	             "bnb_4bit_compute_dtype: float16\n",
	                "", "bnb_4bit_compute_dtype=float16: ferry computes in compute_dtype"},
	        {"adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
	                "", "!2 bytes"},
	        {"recipe: fp8-hybrid\n", "", "recipe=fp8-hybrid: ferry computes in bf16"},
	        {"recipe: bf16\n", "",
	                ": Surogate trains LoRA adapters unless its file says otherwise; for every "
	                "weight set lora=false"},
	        {"use_peft: true\nlora_target_modules: all-linear\n", "",
	                "reading it as a configuration of TRL"},
	};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int absent = *rows[i].says == '!';

		if (parse(&c, VERB_TRAIN, rows[i].yaml, rows[i].words))
			fail_msg("case %zu: %s", i, err_text());
		if ((strstr(logged, rows[i].says + absent) == NULL) != absent)
			fail_msg("case %zu: %s", i, logged);
		assert_round_trip(rows[i].yaml, rows[i].words);
		config_free(&c);
	}
}

#define NOT_QUANTIZED " is not supported; quantized weights cannot be trained"
#define NO_SUCH_FORM "this form of LoRA is not supported; plain LoRA, use_rslora and use_dora are"

static const struct {
	const char *yaml, *text;
} refused[] = {
        {"load_in_4bit: true\nbnb_4bit_quant_type: nf4\n", "YAML:1: load_in_4bit=true" NOT_QUANTIZED},
        {"stage: sft\nfinetuning_type: full\nquantization_bit: 4\nquantization_method: bnb\n",
                "YAML:3: quantization_bit=4" NOT_QUANTIZED},
        {"gptq: true\n",
                "YAML:1: gptq=true: not supported; base_format quantizes the base to nf4, fp4, fp8, int8 or "
                "mxfp4; remove it"},
        {"adapter: llama-adapter\n", "YAML:1: adapter=llama-adapter: of adapters only lora is supported"},
        {"adapter: lora\nlora_alpha: 16\n",
                "YAML:1: adapter=lora: needs lora_r, for which axolotl has no default"},
        {"adapter: lora\nlora_r: 16\n",
                "YAML:1: adapter=lora: needs lora_alpha, for which axolotl has no default"},
        {"adapter: lora\nlora_r: 16\nlora_alpha: 16\n",
                "YAML:1: adapter=lora: needs lora_target_linear: true, or lora_target_modules"},
        {"adapter: lora\nlora_r: 8\nlearning_rate: x\npeft_layer_replication: [0, 1]\nrelora: true\n",
                "2 problems:\n  YAML:4: peft_layer_replication=0,1, relora=true (line 5): " NO_SUCH_FORM
                "\n  YAML:3: learning_rate=x is not a number"},
        {"adapter: lora\nrelora: true\npeft_layer_replication: [0, 1]\n",
                "YAML:2: relora=true, peft_layer_replication=0,1 (line 3): " NO_SUCH_FORM},
        {"adapter: lora\npeft:\n  loftq_config:\n    loftq_bits: 4\n",
                "YAML:4: peft.loftq_config.loftq_bits=4: " NO_SUCH_FORM},
        {"adapter: lora\npeft_init_lora_weights: gaussian\n",
                "YAML:2: peft_init_lora_weights=gaussian: only PEFT's own start is supported: A at random, B "
                "zero; remove it"},
        {"adapter: lora\nlora_dropout: 2\n", "YAML:2: lora_dropout=2 must be between 0 and 0.999"},
        {"stage: sft\nfinetuning_type: oft\n",
                "YAML:2: finetuning_type=oft: of adapters only lora is supported"},
        {"stage: sft\npissa_init: true\nloraplus_lr_ratio: 16\n", "YAML:2: pissa_init=true: " NO_SUCH_FORM},
        {"stage: sft\nadapter_name_or_path: a,b\n",
                "YAML:2: adapter_name_or_path=a,b: only one adapter is supported; merge the others into the "
                "model first"},
        {"stage: sft\nadapter_name_or_path: a\ncreate_new_adapter: true\n",
                "YAML:3: create_new_adapter=true: training goes on with the adapter that is named; for a new "
                "one merge it into the model first"},
        {LLAMA_FACTORY "finetuning_type: full\nadapter_name_or_path: a\n",
                "YAML:6: adapter_name_or_path=a has no effect without finetuning_type: lora; add that, or "
                "remove the key"},
        {TRL "lora_r: 8\n",
                "YAML:4: lora_r=8 has no effect without use_peft: true; add that, or remove the key"},
        {TRL "use_peft: true\n",
                "YAML:4: use_peft=true: PEFT names no modules for this model; set lora_target_modules, as in "
                "[q_proj, v_proj], or all-linear"},
        {TRL "use_peft: maybe\n", "YAML:4: use_peft=maybe: is neither on nor off"},
        {TRL "peft_config:\n  bias: all\n  task_type: SEQ_CLS\n  peft_type: IA3\n",
                "3 problems:\n  YAML:5: peft_config.bias=all: adapters here train no biases; set bias to "
                "none\n"
                "  YAML:6: peft_config.task_type=SEQ_CLS: only CAUSAL_LM is supported\n"
                "  YAML:7: peft_config.peft_type=IA3: of adapters only LoRA is supported"},
        {TRL "peft_config:\n  layer_replication: h\n",
                "YAML:5: peft_config.layer_replication=h: " NO_SUCH_FORM},
        {TORCHTUNE "  lora_rank: 8\n",
                "YAML:14: model._component_=torchtune.models.llama3_1.lora_llama3_1_8b: needs "
                "lora_attn_modules, as in [q_proj, v_proj]"},
        {"model:\n  _component_: torchtune.models.llama3.qlora_llama3_8b\n",
                "YAML:2: model._component_=torchtune.models.llama3.qlora_llama3_8b: needs "
                "lora_attn_modules, as in [q_proj, v_proj]"},
        {"model:\n  _component_: torchtune.models.llama3.llama3_8b\n  lora_rank: 8\n",
                "YAML:3: model.lora_rank=8 has no effect without a model._component_ of LoRA; add that, or "
                "remove the key"},
        {"metric_logger:\n  log_dir: a\nrun_val_every_n_steps: 20\nquantizer:\n  groupsize: 256\n",
                "YAML:5: quantizer.groupsize=256: this file trains with rounding to a quantized format, "
                "which ferry cannot do"},
        {"use_lora: true\n", "YAML:1: use_lora=true: needs lora_rank"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, refused[i].yaml, "");

		if (err != ERR_INPUT && err != ERR_UNSUPPORTED)
			fail_msg("case %zu is not refused: %s", i, refused[i].text);
		assert_string_equal(message(), refused[i].text);
		assert_round_trip(refused[i].yaml, "");
		config_free(&c);
	}
}

/* The other verbs take the same file: how to train does not concern them. */
static void test_other_verbs(void **state)
{
	static const char *const files[] = {
	        LORA_AXOLOTL, LLAMA_FACTORY, TRL "use_peft: true\n", OBJECT, torchtune};
	struct config c;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		assert_int_equal(parse(&c, VERB_EVAL, files[i], ""), 0);
		assert_null(strstr(logged, "dropout"));
		config_free(&c);
	}
	assert_int_equal(parse(&c, VERB_PLAN, LLAMA_FACTORY, ""), 0);
	assert_string_equal(config_text(&c, "lora_rank"), "8");
	config_free(&c);
}

/* A key of transformers beside ferry's own says nothing of LoRA. */
static void test_own_keys(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(
	        parse(&c, VERB_TRAIN, "", "model=m data=d.jsonl max_length=512 save_strategy=no"), 0);
	assert_int_equal(c.lora_rank, 0);
	assert_null(strstr(logged, "LoRA"));
	config_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_own_keys),
	        cmocka_unit_test(test_asked),
	        cmocka_unit_test(test_modules_by_family),
	        cmocka_unit_test(test_said),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_other_verbs),
	};

	return parse_run_tests(tests);
}
