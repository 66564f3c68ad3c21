/* The post_processor of tokenizer.json: which ids stand before, between and behind one text or two.
 *
 * TemplateProcessing, BertProcessing and RobertaProcessing all come down to two lists of parts. */
#ifndef FERRY_DATA_TOKENIZER_POST_PROCESSOR_H
#define FERRY_DATA_TOKENIZER_POST_PROCESSOR_H

#include <jansson.h>

#include "data/tokenizer/token_list.h"
#include "data/tokenizer/vocab.h"

enum { TEMPLATE_PARTS_MAX = 64, TEMPLATE_TEXTS = 2 };

/* Ids that are put in, or (text >= 0) the ids of the first or second text. */
struct template_part {
	int text;
	int64_t first, count; /* in template.ids */
};

struct template
{
	int loaded; /* one was in the file */
	struct template_list {
		struct template_part parts[TEMPLATE_PARTS_MAX];
		int count;
	} lists[TEMPLATE_TEXTS]; /* for one text, for two */
	struct token_list ids;
};

/* From the value of "post_processor", which may be null or absent. */
int template_load(struct template *t, const struct vocab *vocab, const json_t *spec, const char *where);
void template_free(struct template *t);

#endif
