/* Finds fields and roles of rows by the names that a data set uses. */
#include "data/chat/row_fields.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *key, *usual;
} fields[] = {
#define FIELD(id, name, usual) [ROW_FIELD_##id] = {"field_" #name, usual},
        ROW_FIELDS(FIELD)};

static const struct {
	const char *name, *usual;
} roles[] = {
#define ROLE(id, name, canonical, usual) [ROW_ROLE_##id] = {canonical, usual},
        ROW_ROLES(ROLE)};

enum { NAME_BYTES = 256 };

/* Copies the first name of a list. Returns the rest of the list, or NULL at its end. */
static const char *next_name(char name[NAME_BYTES], const char *list)
{
	size_t len;

	list += strspn(list, " ,");
	len = strcspn(list, ",");
	if (!len)
		return NULL;
	snprintf(name, NAME_BYTES, "%.*s", (int)len, list);
	for (size_t end = strlen(name); end && name[end - 1] == ' '; end--)
		name[end - 1] = 0;
	return list + len;
}

static int is_in(const char *list, const char *wanted)
{
	char name[NAME_BYTES];

	while (list && (list = next_name(name, list)))
		if (!strcmp(name, wanted))
			return 1;
	return 0;
}

const char *row_field_names(const struct row_names *names, enum row_field field)
{
	return names->fields[field] ? names->fields[field] : fields[field].usual;
}

const char *row_field_key(enum row_field field)
{
	return fields[field].key;
}

json_t *row_field(const struct row_names *names, const json_t *row, enum row_field field, const char **key)
{
	const char *list = row_field_names(names, field);
	char name[NAME_BYTES];

	while ((list = next_name(name, list))) {
		json_t *value = json_object_get(row, name), *object;

		if (!value)
			continue;
		memcpy(&object, &row, sizeof(object)); /* drops const, for the iterator */
		if (key)
			*key = json_object_iter_key(json_object_iter_at(object, name));
		return value;
	}
	return NULL;
}

int row_role_is_set(const struct row_names *names, const char *name)
{
	for (int i = 0; i < ROW_ROLE_COUNT; i++)
		if (is_in(names->roles[i], name))
			return 1;
	return 0;
}

enum row_role row_role_of(const struct row_names *names, const char *name)
{
	for (int i = 0; i < ROW_ROLE_COUNT; i++)
		if (is_in(names->roles[i], name))
			return (enum row_role)i;
	for (int i = 0; i < ROW_ROLE_COUNT; i++)
		if (is_in(roles[i].usual, name))
			return (enum row_role)i;
	return ROW_ROLE_COUNT;
}

const char *row_role_name(enum row_role role)
{
	return roles[role].name;
}

void row_columns(char columns[ROW_COLUMNS_BYTES], const json_t *row)
{
	const char *key;
	const json_t *value;
	json_t *object;
	size_t len = 0;

	columns[0] = 0;
	memcpy(&object, &row, sizeof(object));
	json_object_foreach(object, key, value)
	{
		int more = snprintf(columns + len, ROW_COLUMNS_BYTES - len, "%s\"%s\"", len ? ", " : "", key);

		if (more < 0 || len + (size_t)more >= ROW_COLUMNS_BYTES - 5) {
			snprintf(columns + len, ROW_COLUMNS_BYTES - len, ", ...");
			return;
		}
		len += (size_t)more;
	}
	if (!len)
		snprintf(columns, ROW_COLUMNS_BYTES, "no columns");
}
