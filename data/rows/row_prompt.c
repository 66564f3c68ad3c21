/* Rows of prompt and completion: two texts, tokenized separately, or two lists of messages. */
#include "data/rows/row_formats.h"

#include "base/err.h"
#include "base/json.h"
#include "data/chat/chat.h"
#include "data/rows/dataset_build.h"

/* Only the completion is trained; answers in the prompt are not. */
static int read_chat(struct dataset_builder *b, const json_t *record)
{
	struct chat chat = {.names = b->names, .seen = &b->seen};
	int rc = chat_add_messages(&chat, dataset_builder_get(b, record, ROW_FIELD_PROMPT), b->where);

	chat.prompt_count = chat.messages ? (int64_t)json_array_size(chat.messages) : 0;
	if (rc == 0)
		rc = chat_add_messages(&chat, dataset_builder_get(b, record, ROW_FIELD_COMPLETION), b->where);
	if (rc == 0)
		rc = dataset_builder_add_extras(b, &chat, record);
	if (rc == 0)
		rc = dataset_builder_add_chat(b, &chat, DATASET_INPUTS_PROMPTS);
	chat_free(&chat);
	return rc;
}

int row_prompt_completion_read(struct dataset_builder *b, const json_t *record)
{
	const char *prompt = "", *completion = "";
	size_t prompt_bytes = 0, completion_bytes = 0;
	int chats = json_is_array(dataset_builder_get(b, record, ROW_FIELD_PROMPT)) +
	            json_is_array(dataset_builder_get(b, record, ROW_FIELD_COMPLETION));
	int rc;

	if (chats == 1)
		return err_set(ERR_INPUT,
		        "%s: prompt and completion must both be texts, or both lists of messages", b->where);
	if (chats)
		return read_chat(b, record);
	rc = dataset_builder_refuse_tools(b, record);
	if (rc == 0)
		rc = dataset_builder_need_tokenizer(b);
	if (rc == 0)
		rc = dataset_builder_text(b, record, ROW_FIELD_PROMPT, &prompt, &prompt_bytes);
	if (rc == 0)
		rc = dataset_builder_text(b, record, ROW_FIELD_COMPLETION, &completion, &completion_bytes);
	if (rc == 0)
		rc = dataset_builder_add_answer(
		        b, prompt, prompt_bytes, completion, completion_bytes, DATASET_PIECE_ANSWER);
	return rc < 0 ? rc : dataset_builder_add_said(b);
}
