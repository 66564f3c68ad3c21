/* Opens a model from the text of a config.json, and the beginnings of some. */
#ifndef FERRY_TESTS_CONFIG_TEXT_H
#define FERRY_TESTS_CONFIG_TEXT_H

#include "tests/check.h"

#include "base/json.h"
#include "model/families/open.h"

static inline int open_text(struct model **model, const char *text)
{
	json_t *config = NULL;
	int err = json_parse(&config, "config.json", text, strlen(text));

	*model = NULL;
	if (!err)
		err = model_open(model, config, "config.json");
	json_decref(config);
	return err;
}

#define LLAMA                                                                                                \
	"\"model_type\":\"llama\",\"vocab_size\":40,\"hidden_size\":16,\"intermediate_size\":24,"            \
	"\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define GPT2                                                                                                 \
	"\"model_type\":\"gpt2\",\"n_embd\":16,\"n_head\":4,\"n_layer\":2,\"vocab_size\":40,\"n_"            \
	"positions\":8"
#define NEOX                                                                                                 \
	"\"model_type\":\"gpt_neox\",\"vocab_size\":40,\"hidden_size\":16,\"intermediate_size\":24,"         \
	"\"num_hidden_layers\":2,\"num_attention_heads\":2"

#endif
