/* The arrays of a micro-batch of rows that an objective may take. */
#ifndef FERRY_DATA_BATCH_FIELD_H
#define FERRY_DATA_BATCH_FIELD_H

enum batch_field {
	BATCH_FIELD_NONE,
	BATCH_FIELD_LABELS,      /* I32 by target: what it predicts */
	BATCH_FIELD_DOC_TARGETS, /* I32 by border of documents: the targets before it */
	BATCH_FIELD_DOC_VALUES   /* F64 by document: a number of the caller (batch_source) */
};

#endif
