"""Write models and archives that stand in for published ones: tiny, random, in the publishers' layouts."""
