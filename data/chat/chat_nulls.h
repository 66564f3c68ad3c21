/* Nulls that Arrow puts into tool calls and schemas.
 *
 * All objects of a column have the same keys in Arrow. So where `datasets` writes rows as JSON, the arguments
 * of each call hold the parameters of all other functions too, as null. data/source/parquet_records.c drops
 * such members of Parquet files. In JSON a null may be what the user wrote, as an argument or in a schema. It
 * goes only in a chat that shows Arrow's work:
 * - a member of "properties" in a schema is null, which no schema means; or
 * - an argument is null that the schema of its function does not name; or
 * - without tools, calls of two functions have the same arguments, and both have a null.
 */
#ifndef FERRY_DATA_CHAT_CHAT_NULLS_H
#define FERRY_DATA_CHAT_CHAT_NULLS_H

#include <jansson.h>

/* Drops null members of the messages' calls and of the tools (NULL: none) if they are Arrow's: 1 if there
 * were any, 0, or ERR_NOMEM. *tools becomes a copy, as its objects may be the record's. */
int chat_drop_nulls(const json_t *messages, json_t **tools);

#endif
