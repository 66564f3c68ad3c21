/* The steps of a pre-tokenizer, between the file that loads them and the one that runs them. */
#ifndef FERRY_DATA_TOKENIZER_PRETOKENIZER_INSIDE_H
#define FERRY_DATA_TOKENIZER_PRETOKENIZER_INSIDE_H

#include "data/tokenizer/pretokenizer.h"

/* A run over one text, seen from one of its steps. */
struct walk;

/* One word of a walk. */
struct word {
	const char *text;
	size_t len_bytes;
	size_t head_bytes; /* as in pretokenizer_run */
};

/* Hands what the step at `index` makes of a word to the step behind it. */
struct pretokenizer_action {
	int (*run)(struct walk *walk, int index, struct word word);
};

extern const struct pretokenizer_action action_split, action_class, action_char, action_words,
        action_prefix_space, action_bytes, action_metaspace, action_length;

#endif
