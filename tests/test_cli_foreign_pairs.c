/* links: cli */
/* Preference training in the words of other trainers: what is understood, and what is refused by name. */
#include "tests/cli_round.h"

#define LLAMA_FACTORY "model_name_or_path: m\nfinetuning_type: full\ndataset: d\noutput_dir: o\n"
#define AXOLOTL "base_model: m\nmicro_batch_size: 1\nsequence_len: 512\noutput_dir: o\n"
#define SET(type) "datasets:\n  - path: a.jsonl\n    type: " type "\n"
#define TORCHTUNE "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  path: /m/t.model\n"
#define TRL "model_name_or_path: m\ndataset_name: d\noutput_dir: o\n"

static const struct {
	const char *yaml, *key, *text;
} understood[] = {
        {LLAMA_FACTORY "stage: dpo\n", "preference_loss", "sigmoid"},
        {LLAMA_FACTORY "stage: dpo\npref_loss: simpo\nsimpo_gamma: 0.7\n", "preference_loss", "simpo"},
        {LLAMA_FACTORY "pref_loss: ipo\nstage: dpo\n", "preference_loss", "ipo"},
        {LLAMA_FACTORY "stage: dpo\npref_beta: 0.3\npref_ftx: 0.0\n", "preference_beta", "0.3"},
        {LLAMA_FACTORY "stage: dpo\ndpo_label_smoothing: 0.2\n", "preference_label_smoothing", "0.2"},
        {LLAMA_FACTORY "stage: dpo\nsimpo_gamma: 0.7\n", "preference_gamma", "0.7"},
        {LLAMA_FACTORY "stage: dpo\npref_loss: orpo\npref_beta: 0.2\n", "preference_loss", "orpo"},
        {LLAMA_FACTORY "stage: dpo\npref_ftx: 0.5\n", "preference_own_weight", "0.5"},
        {AXOLOTL SET("chatml.intel") "rl: orpo\norpo_alpha: 0.2\n", "preference_loss", "orpo"},
        {AXOLOTL SET("chatml.intel") "rl: orpo\norpo_alpha: 0.2\n", "preference_beta", "0.2"},
        {AXOLOTL SET("chatml.intel") "rl: orpo\n", "preference_own_tokens", "all"},
        {AXOLOTL SET("chatml.intel") "rl: orpo\npreference_own_tokens: answer\n", "preference_own_tokens",
                "answer"},
        {AXOLOTL SET("chatml.intel") "rl: simpo\n", "preference_own_tokens", "answer"},
        {LLAMA_FACTORY "stage: dpo\npref_loss: orpo\n", "preference_own_tokens", "answer"},
        {AXOLOTL SET("chatml.intel") "rl: simpo\n", "preference_own_weight", "1"},
        {AXOLOTL SET("chatml.intel") "rl: simpo\ncpo_alpha: 0.5\n", "preference_own_weight", "0.5"},
        {TRL "loss_type: sigmoid\ncpo_alpha: 1\n", "preference_loss", "cpo"},
        {TRL "loss_type: simpo\ncpo_alpha: 0.25\n", "preference_own_weight", "0.25"},
        {LLAMA_FACTORY "stage: sft\npref_loss: sigmoid\n", "preference_loss", "off"},
        {LLAMA_FACTORY "pref_loss: sigmoid\n", "preference_loss", "off"},
        {LLAMA_FACTORY "stage: dpo\npreference_loss: hinge\n", "preference_loss", "hinge"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\n", "preference_loss", "sigmoid"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\ndpo_loss_type: [hinge]\n", "preference_loss", "hinge"},
        {AXOLOTL SET("chatml.intel") "rl: ipo\nrl_beta: 0.2\n", "preference_loss", "ipo"},
        {AXOLOTL SET("chatml.intel") "rl: ipo\nrl_beta: 0.2\n", "preference_beta", "0.2"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\ntrl:\n  beta: 0.4\n", "preference_beta", "0.4"},
        {AXOLOTL SET("chatml.intel") "rl: simpo\ncpo_alpha: 0.0\nsimpo_gamma: 1.5\n", "preference_gamma",
                "1.5"},
        {AXOLOTL SET("chatml.intel") "rl: null\n", "preference_loss", "off"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\n", "data_format", "preference"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\n", "field_instruction", "question"},
        {AXOLOTL SET("chatml.intel") "rl: dpo\n", "alpaca_form", "chat"},
        {AXOLOTL SET("llama3.icr") "rl: dpo\n", "chat_template", "llama3"},
        {AXOLOTL SET("llama3.icr") "rl: dpo\nchat_template: gemma\n", "chat_template", "gemma"},
        {AXOLOTL SET("chatml.argilla") "rl: dpo\n", "field_instruction", "prompt,input,question,instruction"},
        {AXOLOTL SET("chatml.ultra") "rl: dpo\n", "field_instruction", ""},
        {AXOLOTL SET("chat_template.default") "    field_messages: conversation\n    field_chosen: good\n"
                                              "    field_rejected: bad\nrl: dpo\n",
                "field_chosen", "good"},
        {AXOLOTL SET("chat_template.default") "rl: dpo\n", "chat_template", ""},
        {AXOLOTL SET("passthrough") "rl: dpo\n", "data_format", "preference"},
        {AXOLOTL "datasets:\n  - path: a.jsonl\n    type:\n      field_prompt: q\n      field_chosen: good\n"
                 "      field_rejected: bad\n      prompt_format: '{prompt}'\nrl: dpo\n",
                "field_prompt", "q"},
        {TRL "loss_type: [sigmoid_norm]\nbeta: 0.05\nlabel_smoothing: 0\n", "preference_loss",
                "sigmoid_norm"},
        {TRL "loss_type: robust\nlabel_smoothing: 0.1\nprecompute_ref_log_probs: true\n"
             "truncation_mode: keep_start\nmax_prompt_length: null\nreference_free: false\n"
             "f_divergence_type: reverse_kl\nsync_ref_model: false\nloss_weights: [1.0]\n",
                "preference_label_smoothing", "0.1"},
        {TRL "loss_type: nll\n", "preference_loss", "off"},
        {TRL "beta: 0.05\npreference_loss: dpo\n", "preference_beta", "0.05"},
        {"loss: dpo\n", "preference_loss", "sigmoid"},
        {AXOLOTL "rl: kto\nkto_desirable_weight: 0.2\n", "preference_desirable_weight", "0.2"},
        {AXOLOTL "rl: kto\n", "preference_loss", "kto"},
        {AXOLOTL SET("llama3.ultra") "rl: kto\n", "data_format", "alpaca"},
        {AXOLOTL SET("llama3.ultra") "rl: kto\n", "field_instruction", "prompt"},
        {AXOLOTL SET("llama3.ultra") "rl: kto\n", "field_output", "completion"},
        {AXOLOTL SET("chatml.intel") "rl: kto\n", "field_instruction", "question"},
        {AXOLOTL SET("chatml.intel") "rl: kto\n", "alpaca_form", "chat"},
        {AXOLOTL SET("chatml.argilla_chat") "rl: kto\n", "field_messages", "completion"},
        {AXOLOTL SET("chatml.argilla_chat") "rl: kto\n", "data_format", "messages"},
        {AXOLOTL "datasets:\n  - path: a.jsonl\n    type:\n      field_completion: good\n"
                 "      field_label: ok\n      completion_format: '{completion}'\nrl: kto\n",
                "field_label", "ok"},
        {LLAMA_FACTORY "stage: kto\n", "preference_loss", "kto"},
        {LLAMA_FACTORY "stage: kto\nkto_rejected_weight: 0.5\n", "preference_undesirable_weight", "0.5"},
        {TORCHTUNE "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n  beta: 0.2\n", "preference_loss",
                "sigmoid"},
        {TORCHTUNE "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n  beta: 0.2\n", "preference_beta",
                "0.2"},
        {TORCHTUNE "dataset:\n  _component_: torchtune.datasets.preference_dataset\n", "data_format",
                "preference"},
        {TORCHTUNE "checkpointer:\n  keep_last_n_checkpoints: 3\n", "save_total_limit", "3"},
        {TRL "loss_type: kto\n", "preference_loss", "kto"},
        {TRL "desirable_weight: 1.5\nbeta: 0.2\n", "preference_loss", "kto"},
        {TRL "undesirable_weight: 1.5\n", "preference_undesirable_weight", "1.5"},
};

static void test_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(understood) / sizeof(*understood); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, understood[i].yaml, "");

		if (err || strcmp(config_text(&c, understood[i].key), understood[i].text))
			fail_msg("case %zu: %s=\"%s\" %s", i, understood[i].key,
			        err ? "" : config_text(&c, understood[i].key), err ? err_text() : "");
		assert_round_trip(understood[i].yaml, "");
		config_free(&c);
	}
}

static const struct {
	const char *yaml, *text;
} refused[] = {
        {LLAMA_FACTORY "stage: rm\n", "YAML:5: stage=rm: this file trains a reward model; write a file of "
                                      "ferry's keys with objective=reward"},
        {LLAMA_FACTORY "stage: dpo\npref_loss: kto_pair\n",
                "YAML:6: pref_loss=kto_pair: not supported; supported: sigmoid, hinge, ipo, simpo, orpo"},
        {LLAMA_FACTORY "stage: dpo\nref_model: other\n",
                "YAML:6: ref_model=other: the reference is the model as it is before training; remove it"},
        {LLAMA_FACTORY "stage: dpo\npacking: true\n",
                "YAML:6: packing=true is set, but pairs are not packed; set packing=off"},
        {LLAMA_FACTORY "stage: kto\npref_ftx: 0.5\n",
                "YAML:6: pref_ftx=0.5 is not supported with preference_loss=kto; remove it"},
        {AXOLOTL "datasets:\n  - path: a.jsonl\nkto_desirable_weight: 0.2\n",
                "YAML:7: kto_desirable_weight=0.2 has no effect without preference_loss; set it"},
        {TRL "loss_type: apo_zero_unpaired\n", "YAML:4: loss_type=apo_zero_unpaired: only cross-entropy and "
                                               "one loss of pairs are supported; set one"},
        {AXOLOTL "rl: grpo\n",
                "YAML:5: rl=grpo: this file trains by reinforcement learning, which ferry cannot do"},
        {TRL "loss_type: hinge\ncpo_alpha: 0.5\n", "YAML:5: cpo_alpha=0.5 asks for CPO, of which only "
                                                   "loss_type sigmoid and simpo are supported"},
        {AXOLOTL "rl: dpo\nmax_prompt_len: 256\n", "YAML:6: max_prompt_len=256: only max_length limits a "
                                                   "row, prompt and answer together; remove "
                                                   "it"},
        {AXOLOTL "datasets:\n  - path: a.jsonl\n    type:\n      prompt_format: 'Q: {prompt}'\nrl: dpo\n",
                "YAML:8: datasets.0.type.prompt_format=Q: {prompt}: ferry takes the columns as they are; "
                "remove "
                "it"},
        {TRL "beta: 0.1\n", "YAML:4: beta=0.1 does not say which loss; for DPO set loss_type to sigmoid"},
        {TRL "loss_type: [sigmoid, bco_pair, sft]\n", "YAML:4: loss_type=sigmoid,bco_pair,sft: only "
                                                      "cross-entropy and one loss of pairs are supported; "
                                                      "set one"},
        {TRL "loss_type: aot\n", "YAML:4: loss_type=aot: only cross-entropy and one loss of pairs are "
                                 "supported; set one"},
        {TRL "label_smoothing: 0.1\n",
                "YAML:4: label_smoothing=0.1 has no effect without preference_loss; set it"},
        {TRL "loss_type: sigmoid\nreference_free: true\n",
                "YAML:5: reference_free=true: only preference_loss=simpo, cpo and orpo have no reference; "
                "set one of "
                "them"},
        {TRL "loss_type: sigmoid\nsync_ref_model: true\n",
                "YAML:5: sync_ref_model=true: the reference stays the model before training; remove it"},
        {TRL "loss_type: sigmoid\nf_divergence_type: js_divergence\n",
                "YAML:5: f_divergence_type=js_divergence: only reverse_kl is supported"},
        {TRL "loss_type: sigmoid\nld_alpha: 0.5\n",
                "YAML:5: ld_alpha=0.5: tokens of an answer count alike; remove it"},
        {TRL "loss_type: sigmoid\nuse_weighting: true\n",
                "YAML:5: use_weighting=true: pairs are not weighted; remove it"},
        {TRL "loss_type: sigmoid\nloss_weights: [0.8]\n",
                "YAML:5: loss_weights=0.8: only one loss is supported; remove it"},
        {TRL "loss_type: sigmoid\ntruncation_mode: keep_end\n",
                "YAML:5: truncation_mode=keep_end: long rows are cut at the end; set it to keep_start"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct config c;
		int err = parse(&c, VERB_TRAIN, refused[i].yaml, "");

		if (!err)
			err = config_check(&c);
		if (err != ERR_INPUT && err != ERR_UNSUPPORTED)
			fail_msg("case %zu is not refused: %s", i, refused[i].text);
		assert_string_equal(message(), refused[i].text);
		config_free(&c);
	}
}

/* What is said of a file beside its settings. */
static const struct {
	const char *yaml, *says, *hides;
} said[] = {
        {AXOLOTL SET("chatml.intel") "rl: simpo\ncpo_alpha: 0\n", "save_total_limit", "rl=simpo"},
        {LLAMA_FACTORY "stage: sft\npref_loss: ipo\n", "pref_loss=ipo has no effect without stage=dpo", NULL},
        {LLAMA_FACTORY "stage: dpo\npref_loss: ipo\n", "learning_rate", "pref_loss"},
        {TRL "use_peft: false\nloss_type: sigmoid\n", "learning_rate 2e-05 (1e-6)", "train_on_inputs"},
        {TRL "loss_type: [sigmoid]\nlabel_smoothing: 0.1\n",
                "label_smoothing=0.1: TRL 1.16 ignores it with loss_type=sigmoid, and ferry applies it",
                NULL},
        {TRL "loss_type: sigmoid_norm\nlabel_smoothing: 0.1\n",
                "TRL 1.16 ignores it with loss_type=sigmoid_norm", NULL},
        {TRL "loss_type: robust\nlabel_smoothing: 0.1\n", "", "TRL 1.16 ignores"},
        {TRL "loss_type: sigmoid\nlabel_smoothing: 0\n", "", "TRL 1.16 ignores"},
        {LLAMA_FACTORY "stage: dpo\ndpo_label_smoothing: 0.2\n", "", "TRL 1.16 ignores"},
        {LLAMA_FACTORY "preference_loss: simpo\npreference_own_tokens: all\n",
                "preference_own_tokens=all has no effect with preference_own_weight=0", NULL},
        {LLAMA_FACTORY "preference_loss: orpo\npreference_own_tokens: all\n", "", "has no effect with"},
        {TRL "loss_type: kto\n", "shuffle on (off)", "train_on_inputs"},
        {TRL "use_peft: false\n", "train_on_inputs off (chats)", "learning_rate"},
};

static void test_said(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
		struct config c;

		assert_int_equal(parse(&c, VERB_TRAIN, said[i].yaml, ""), 0);
		check_ok(config_check(&c));
		if (!strstr(logged, said[i].says) || (said[i].hides && strstr(logged, said[i].hides)))
			fail_msg("case %zu: %s", i, logged);
		config_free(&c);
	}
}

/* The same file serves other verbs, and the command line changes it. */
static void test_layers(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(parse(&c, VERB_EVAL, LLAMA_FACTORY "stage: dpo\n", ""), 0);
	config_free(&c);
	assert_int_equal(parse(&c, VERB_DATA, AXOLOTL SET("chatml.intel") "rl: dpo\n", ""), 0);
	assert_string_equal(config_text(&c, "data_format"), "preference");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, LLAMA_FACTORY "stage: dpo\n", "pref_loss=ipo"), 0);
	assert_string_equal(config_text(&c, "preference_loss"), "ipo");
	config_free(&c);
	assert_int_equal(parse(&c, VERB_TRAIN, LLAMA_FACTORY "stage: dpo\n", "stage=sft"), 0);
	assert_string_equal(config_text(&c, "preference_loss"), "off");
	config_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_understood),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_said),
	        cmocka_unit_test(test_layers),
	};

	return parse_run_tests(tests);
}
