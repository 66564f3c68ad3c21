/* The label of a token that is not trained. Every other label is the token id to predict. */
#ifndef FERRY_DATA_LABEL_H
#define FERRY_DATA_LABEL_H

enum { DATASET_IGNORE = -100 };

#endif
