/* The post_processor of tokenizer.json: the ids before, between and after one or two texts.
 *
 * TemplateProcessing, BertProcessing and RobertaProcessing all become two lists of parts. */
#ifndef FERRY_DATA_TOKENIZER_POST_PROCESSOR_H
#define FERRY_DATA_TOKENIZER_POST_PROCESSOR_H

#include <jansson.h>

#include "data/tokenizer/token_list.h"
#include "data/tokenizer/vocab.h"

enum { TEMPLATE_PARTS_MAX = 64, TEMPLATE_TEXTS = 2 };

/* Inserted ids, or (text >= 0) the ids of the first or second text. */
struct template_part {
	int text;
	int64_t first, count; /* in template.ids */
};

struct template
{
	int loaded; /* the file has one */
	struct template_list {
		struct template_part parts[TEMPLATE_PARTS_MAX];
		int count;
	} lists[TEMPLATE_TEXTS]; /* for one text, for two */
	struct token_list ids;
};

/* Loads the value of "post_processor", which may be null or absent. */
int template_load(struct template *t, const struct vocab *vocab, const json_t *spec, const char *where);
void template_free(struct template *t);

#endif
