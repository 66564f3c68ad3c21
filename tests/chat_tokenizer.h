/* A tokenizer for tests of chats: one token per ASCII character, and special tokens. */
#ifndef FERRY_TESTS_CHAT_TOKENIZER_H
#define FERRY_TESTS_CHAT_TOKENIZER_H

#include "base/str.h"

enum { CHAT_TOKENIZER_VOCAB = 105, CHAT_TOKENIZER_EOS = 97, CHAT_TOKENIZER_IM_END = 99 };

/* Its tokenizer.json. */
static inline void chat_tokenizer_json(struct str *json)
{
	static const char *const special[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>",
	        "<|user|>", "<|assistant|>", "[INST]", "[/INST]"};

	str_add(json, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
	for (int i = 0; i < 9; i++)
		str_printf(json,
		        "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
		        "false,"
		        "\"normalized\":false,\"special\":true}",
		        i ? "," : "", 96 + i, special[i]);
	str_add(json,
	        "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
	        "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
	        "\"ByteLevel\","
	        "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":"
	        "\"BPE\","
	        "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_"
	        "suffix\":\"\","
	        "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{\"\\u0120\":0,\"\\u010a\":1");
	for (int c = 33; c < 127; c++)
		str_printf(json, ",\"%s%c\":%d", c == '"' || c == '\\' ? "\\" : "", c, c - 31);
	str_add(json, "},\"merges\":[]}}");
}

#endif
