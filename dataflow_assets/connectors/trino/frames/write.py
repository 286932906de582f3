describe=read=write=None
