/* The columns of rows, under the names that a data set has for them: one list of fields, one of roles.
 *
 * Each field has usual names, the first that a row has counts. A user may set other names (key field_NAME):
 * then only those are looked for. The roles of a chat's messages have usual names and others (role_NAME) in
 * the same way, but other names come on top of the usual ones. Names are separated by commas.
 */
#ifndef FERRY_DATA_ROW_FIELDS_H
#define FERRY_DATA_ROW_FIELDS_H

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
	X(PROMPT, prompt, "prompt")                                                                          \
	X(COMPLETION, completion, "completion")                                                              \
	X(SYSTEM, system, "system")                                                                          \
	X(HISTORY, history, "history")                                                                       \
	X(TOOLS, tools, "tools")                                                                             \
	X(TEXT, text, "text")

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

/* What the user set; NULL = the usual names. Zeroed, all are usual. */
struct row_names {
	const char *fields[ROW_FIELD_COUNT];
	const char *roles[ROW_ROLE_COUNT];
};

/* A field of a row; NULL where it has none. *key, where asked for, is the name that it has there, valid as
 * long as the row. */
json_t *row_field(const struct row_names *names, const json_t *row, enum row_field field, const char **key);

/* The names that a field may have, for messages: those that the user set, or the usual ones. */
const char *row_field_names(const struct row_names *names, enum row_field field);
const char *row_field_key(enum row_field field); /* "field_prompt" */

/* The role behind a name; ROW_ROLE_COUNT = none. */
enum row_role row_role_of(const struct row_names *names, const char *name);
const char *row_role_name(enum row_role role); /* as templates know it */

/* 1 where the user said what this name stands for. */
int row_role_is_set(const struct row_names *names, const char *name);

/* "a, b, c": the columns of a row, cut where they are many. */
enum { ROW_COLUMNS_BYTES = 200 };
void row_columns(char columns[ROW_COLUMNS_BYTES], const json_t *row);

#endif
