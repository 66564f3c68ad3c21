/* What training on chats adds to the files of a model's directory.
 *
 * A base model has no chat template, and its eos_token_id names the end of a text, not of a turn. After
 * training on chats it answers in turns: whoever loads it must know how to write a chat, and at which ids to
 * stop. transformers and others read the template from chat_template.jinja (before tokenizer_config.json),
 * and what ends a text from generation_config.json, or config.json where that file is not there.
 */
#ifndef FERRY_CHECKPOINT_HF_CHAT_H
#define FERRY_CHECKPOINT_HF_CHAT_H

#include "checkpoint/side_files.h"

#include <stdint.h>

enum { HF_CHAT_END_IDS_MAX = 16 };

/* Zero-initialised: no chats. */
struct hf_chat {
	char *template_text; /* owned; NULL: the model's own files say it */
	int32_t end_ids[HF_CHAT_END_IDS_MAX];
	int end_id_count;
	int32_t text_end_ids[HF_CHAT_END_IDS_MAX]; /* what ended a text so far, where no file says it */
	int text_end_id_count;
};

/* Adds the end ids behind those of eos_token_id in config.json and generation_config.json, and replaces
 * chat_template.jinja. Ids that are listed already change nothing, and a missing generation_config.json is
 * made with the ids of config.json. Without chats nothing is done. ERR_INPUT (config.json is wrong),
 * ERR_NOMEM. */
int hf_chat_apply(const struct hf_chat *chat, struct side_files *side);

void hf_chat_free(struct hf_chat *chat);

#endif
