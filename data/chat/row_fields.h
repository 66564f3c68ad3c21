/* Names of columns and roles in data sets: one list of fields, one of roles.
 *
 * Each field has usual names; the first one in a row counts. If the user sets other names (key field_NAME),
 * only those count. Roles of messages have usual names too; names that the user sets (role_NAME) are
 * additional. Commas separate names.
 */
#ifndef FERRY_DATA_CHAT_ROW_FIELDS_H
#define FERRY_DATA_CHAT_ROW_FIELDS_H

#include <jansson.h>

/* X(name in the enum, name for users, usual names) */
#define ROW_FIELDS(X)                                                                                        \
	X(INPUT_IDS, input_ids, "input_ids")                                                                 \
	X(LABELS, labels, "labels")                                                                          \
	X(MESSAGES, messages, "messages,conversations,conversation")                                         \
	X(ROLE, role, "role,from")                                                                           \
	X(CONTENT, content, "content,value")                                                                 \
	X(INSTRUCTION, instruction, "instruction")                                                           \
	X(INPUT, input, "input")                                                                             \
	X(OUTPUT, output, "output")                                                                          \
	X(PROMPT, prompt, "prompt,prompt_ids,prompt_input_ids")                                              \
	X(COMPLETION, completion, "completion")                                                              \
	X(CHOSEN, chosen, "chosen,chosen_response,chosen_ids,chosen_input_ids")                              \
	X(REJECTED, rejected,                                                                                \
	        "rejected,rejected_response,rejected_messages,rejected_ids,rejected_input_ids")              \
	X(SYSTEM, system, "system")                                                                          \
	X(HISTORY, history, "history")                                                                       \
	X(TOOLS, tools, "tools")                                                                             \
	X(TEXT, text, "text")                                                                                \
	X(ANCHOR, anchor, "anchor")                                                                          \
	X(POSITIVE, positive, "positive")                                                                    \
	X(NEGATIVE, negative, "negative")                                                                    \
	X(SCORE, score, "score,scores,label,labels")                                                         \
	X(TEXT_PAIR, text_pair, "text_pair,sentence2,hypothesis,question2")                                  \
	X(LABEL, label, "label,labels,kto_tag")

/* X(name in the enum, name for users, as templates know it, usual names) */
#define ROW_ROLES(X)                                                                                         \
	X(USER, user, "user", "user,human,prompter")                                                         \
	X(ASSISTANT, assistant, "assistant", "assistant,gpt,chatgpt,bing,bard,claude,model,bot,chatbot,ai")  \
	X(SYSTEM, system, "system", "system")                                                                \
	X(TOOL, tool, "tool", "tool,observation,function_response,tool_response,function,ipython")           \
	X(TOOL_CALL, tool_call, "tool_call", "tool_call,function_call")

enum row_field {
#define ROW_FIELD_ENUM(id, name, usual) ROW_FIELD_##id,
	ROW_FIELDS(ROW_FIELD_ENUM) ROW_FIELD_COUNT
};

enum row_role {
#define ROW_ROLE_ENUM(id, name, canonical, usual) ROW_ROLE_##id,
	ROW_ROLES(ROW_ROLE_ENUM) ROW_ROLE_COUNT /* no role */
};

/* Names from the user; NULL = the usual names. Zeroed, all are usual. */
struct row_names {
	const char *fields[ROW_FIELD_COUNT];
	const char *roles[ROW_ROLE_COUNT];
};

/* A field of a row; NULL if absent. *key (key may be NULL) is its name in the row, valid as long as the row.
 */
json_t *row_field(const struct row_names *names, const json_t *row, enum row_field field, const char **key);

/* The names of a field, for messages: the user's, or the usual ones. */
const char *row_field_names(const struct row_names *names, enum row_field field);
const char *row_field_key(enum row_field field); /* "field_prompt" */

/* The role of a name; ROW_ROLE_COUNT = none. */
enum row_role row_role_of(const struct row_names *names, const char *name);
const char *row_role_name(enum row_role role); /* as templates know it */

/* 1 if the user mapped this name to a role. */
int row_role_is_set(const struct row_names *names, const char *name);

/* "a, b, c": the columns of a row, cut if there are many. */
enum { ROW_COLUMNS_BYTES = 200 };
void row_columns(char columns[ROW_COLUMNS_BYTES], const json_t *row);

#endif
