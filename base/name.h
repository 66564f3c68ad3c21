/* Names as users write them: case does not matter, and dashes equal underscores. */
#ifndef FERRY_BASE_NAME_H
#define FERRY_BASE_NAME_H

/* The normal form of a character in a name. */
int name_fold(int c);

/* Distance of two names by insertions, deletions, changes and swaps of neighbours, over the first 63
 * characters. */
int name_distance(const char *a, const char *b);

/* The largest distance at which a name is offered for this one: 1 for short names, else 2. */
int name_near(const char *name);

#endif
